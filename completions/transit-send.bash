_transit__send() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="transit__send"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        transit__send)
            opts="-m -v -h -V --message --status --list-sources --json --secret-file --secret-env --verbose --color --conversation --event-key --user --trigger --meta --reply-url --raw --lines --jobs --no-spool --spool-only --dry-run --timeout --as --reply-to --wait --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --message)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -m)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --status)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --secret-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --secret-env)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --conversation)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --event-key)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --trigger)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --meta)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-url)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --as)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reply-to)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --wait)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

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
        -m | --message | --secret-file | --secret-env | --color | --conversation | --event-key | --user | --trigger | --meta | --reply-url | --jobs | --timeout | --as | --reply-to | --wait)
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

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _transit__send__now -o nosort -o bashdefault -o default transit-send
else
    complete -F _transit__send__now -o bashdefault -o default transit-send
fi
