complete -c transit-sign -l secret-file -d 'Read the secret from FILE; one newline at its end is dropped' -r -F
complete -c transit-sign -l secret-env -d 'Read the secret from the environment variable NAME [default: TRANSIT_SECRET]' -r
complete -c transit-sign -l timestamp -d 'The time of signing in Unix seconds [default: now]' -r
complete -c transit-sign -l output -d 'What to print for each payload [default: headers]' -r -f -a "headers\t'The two header lines, as curl -H @FILE reads them'
signature\t'The signature alone'
json\t'One line of JSON: file, timestamp, signature, bytes'
curl\t'A command line for sh that posts the file'"
complete -c transit-sign -l url -d 'Where the command of --output curl posts to' -r
complete -c transit-sign -l signature -d 'The signature to verify' -r
complete -c transit-sign -l headers -d 'Take the timestamp and the signature to verify from the header lines in FILE' -r -F
complete -c transit-sign -l tolerance -d 'How far the timestamp may be from now' -r
complete -c transit-sign -l now -d 'The time to take for now, RFC 3339 or Unix seconds' -r
complete -c transit-sign -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-sign -l json -d 'The same as --output json; with --verify, the verdict as JSON'
complete -c transit-sign -l lines -d 'Sign every line, without its newline, as one payload'
complete -c transit-sign -l null -d 'Sign every record that ends with a NUL as one payload'
complete -c transit-sign -l verify -d 'Verify one payload instead of signing'
complete -c transit-sign -l explain -d 'When it does not verify, look for the usual mistakes and name the one that fits'
complete -c transit-sign -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-sign -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-sign -s V -l version -d 'Print version'
