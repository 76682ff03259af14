
# By hand: what is there now. What has not the form of an id or a name is left out, so that nothing else gets here.

# The newest thousand ids of the spool, in the states $1.
_transit_ids() {
    local -a ids
    ids=(${(f)"$(transit-spool list --json 2>/dev/null |
        LC_ALL=C sed -nE 's/^\{"id":"((tx|evt)_[0-9a-f]{12})","kind":"(event|message)",.*"state":"('"$1"')",.*/\1:\3, \4/p' |
        tail -n 1000)"})
    _describe -t ids 'entry of the spool' ids
}

# The names of the sources in the configuration, or what else DEST may be.
_transit_dest() {
    local -a sources
    sources=(${(f)"$(transit-send --list-sources 2>/dev/null | LC_ALL=C grep -xE '[a-z][a-z0-9_-]{0,31}')"})
    _describe -t sources source sources || _message 'URL, NAME@HOST or #ROOM'
}
