# By hand: what is there now. What has not the form of an id or a name is left out, so that nothing else gets here.

# The newest thousand ids of the spool, in the states $1.
_transit_ids() {
    transit-spool list --json 2>/dev/null |
        LC_ALL=C sed -nE 's/^\{"id":"((tx|evt)_[0-9a-f]{12})",.*"state":"('"$1"')",.*/\1/p' | tail -n 1000
}

# The names of the sources in the configuration.
_transit_sources() {
    transit-send --list-sources 2>/dev/null | LC_ALL=C grep -xE '[a-z][a-z0-9_-]{0,31}'
}

# Answers with the lines of stdin that begin with $1.
_transit_offer() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line != "$1"* ]] || COMPREPLY+=("$line")
    done
}
