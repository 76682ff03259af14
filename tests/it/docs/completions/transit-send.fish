
# The names of the sources in the configuration.
function __fish_transit_sources
    transit-send --list-sources 2>/dev/null | LC_ALL=C grep -xE '[a-z][a-z0-9_-]{0,31}'
end

# Whether DEST is the next word: the first one that belongs to no option.
function __fish_transit_send_wants_dest
    set -l words (commandline -opc)
    argparse -n transit-send @OPTIONS@ -- $words[2..] 2>/dev/null
    and not set -q argv[1]
    and not set -q _flag_status
    and not set -q _flag_list_sources
end

complete -c transit-send -l status -x -a "(__fish_transit_ids '[a-z]+')"
complete -c transit-send -n __fish_transit_send_wants_dest -f -a "(__fish_transit_sources)" -d source
