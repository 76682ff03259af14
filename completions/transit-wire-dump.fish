complete -c transit-wire-dump -l filter -d 'Only frames with these values; repeat it for others' -r
complete -c transit-wire-dump -l width -d 'Columns of a line, 0 for no limit [default: the terminal\'s]' -r
complete -c transit-wire-dump -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-wire-dump -l json -d 'Print records in JSON, one a line'
complete -c transit-wire-dump -l show-secrets -d 'Show capabilities, tokens and secrets, which a dump of other programs may hold'
complete -c transit-wire-dump -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-wire-dump -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-wire-dump -s V -l version -d 'Print version'
