
_transit__spool__now() {
    _transit__spool "$@"
    [[ $2 != -* && $3 != --color && $3 != = ]] || return 0
    local i verb=""
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --color) [[ ${COMP_WORDS[++i]} != = ]] || ((++i)) ;;
        -*) ;;
        *)
            verb=${COMP_WORDS[i]}
            break
            ;;
        esac
    done
    case $verb in
    show | rm) _transit_offer "$2" < <(_transit_ids '[a-z]+') ;;
    retry) _transit_offer "$2" < <(_transit_ids 'pending|claimed|dead') ;;
    esac
}
