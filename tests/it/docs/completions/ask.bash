# Prints what bash would complete: ask.bash DIR-OF-COMPLETIONS WORD…, the last of which is the unfinished one.
dir=$1
shift
# shellcheck source=/dev/null
source "$dir/$1.bash"
registered=$(complete -p "$1")
registered=${registered#*-F }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"${registered%% *}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}"
