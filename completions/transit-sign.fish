complete -c transit-sign -l secret-file -d 'Read the secret from FILE, and not from the variable TRANSIT_SECRET' -r -F
complete -c transit-sign -l secret-env -d 'Read it from variable NAME [default: TRANSIT_SECRET]' -r
complete -c transit-sign -l timestamp -d 'The time of signing in Unix seconds [default: now]' -r
complete -c transit-sign -l output -d 'What to print [default: headers]' -r -f -a "headers\t'The two header lines, as curl -H @FILE reads them'
signature\t'The signature alone'
json\t'One line of JSON: file, timestamp, signature, bytes'
curl\t'A command line for sh that posts the file'"
complete -c transit-sign -l url -d 'Where --output curl posts to' -r
complete -c transit-sign -l signature -d 'The signature to verify' -r
complete -c transit-sign -l headers -d 'Take timestamp and signature from header lines' -r -F
complete -c transit-sign -l tolerance -d 'How far from now is fresh' -r
complete -c transit-sign -l now -d 'The time to take for now, also RFC 3339' -r
complete -c transit-sign -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-sign -l json -d 'Print JSON; with --verify, the verdict'
complete -c transit-sign -l lines -d 'Sign every line, without its newline, as one payload'
complete -c transit-sign -l null -d 'Sign every NUL-ended record as one payload'
complete -c transit-sign -l verify -d 'Verify one payload instead of signing'
complete -c transit-sign -l explain -d 'When it fails, name the usual mistake that fits'
complete -c transit-sign -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-sign -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-sign -s V -l version -d 'Print version'
