complete -c transit-mcp -l as -d 'Speak as this agent of the host, at a shell. Inside an agent\'s session or pane it is refused' -r
complete -c transit-mcp -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it'
always\t'Always'
never\t'Never'"
complete -c transit-mcp -l tools -d 'Print the tools as lines of JSON, as tools/list tells them, and do nothing else'
complete -c transit-mcp -s v -l verbose -d 'Say more on stderr; twice for debugging'
complete -c transit-mcp -s h -l help -d 'Print help (see more with \'--help\')'
complete -c transit-mcp -s V -l version -d 'Print version'
