
_transit__send__now() {
    _transit__send "$@"
    local i before=$3
    [[ $before != = ]] || before=${COMP_WORDS[COMP_CWORD - 2]}
    case $before in
    --status)
        _transit_offer "${2#=}" < <(_transit_ids '[a-z]+')
        return
        ;;
    esac
    # DEST is the first word that belongs to no option.
    [[ $2 != -* ]] || return 0
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --status | --list-sources) return ;;
        @VALUES@)
            [[ ${COMP_WORDS[++i]} != = ]] || ((++i))
            ((i < COMP_CWORD)) || return 0
            ;;
        -*) ;;
        *)
            # After it comes a file, which bash completes by itself.
            COMPREPLY=()
            return
            ;;
        esac
    done
    _transit_offer "$2" < <(_transit_sources)
}
