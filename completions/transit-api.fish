complete -c transit-api -l socket -d 'The socket [default: api.sock in the agents\' home]' -r -F
complete -c transit-api -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-api -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-api -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-api -s V -l version -d 'Print version'
