
# By hand: what is there now. What has not the form of an id or a name is left out, so that nothing else gets here.

# The newest thousand ids of the spool, in the states that are named.
function __fish_transit_ids
    transit-spool list --json 2>/dev/null |
        LC_ALL=C sed -nE 's/^\{"id":"((tx|evt)_[0-9a-f]{12})","kind":"(event|message)",.*"state":"('$argv[1]')",.*/\1\t\3, \4/p' |
        tail -n 1000
end
