# Prints what zsh would complete: ask.zsh DIR-OF-COMPLETIONS LINE. A second zsh, at a terminal of its own, is given
# the line and a tab; it writes every match to a file, and says on its terminal when it is done.
zmodload zsh/zpty
found=$PWD/found.$$
: >$found
zpty asked zsh -f -i
zpty -w asked "
PS1= PS2= RPS1=
fpath=(${(q)1} \$fpath)
autoload -Uz compinit
compinit -u -D
compadd() {
    local -a hits
    builtin compadd -A hits \"\$@\"
    (( ! \${#hits} )) || print -rl -- \$hits >>${(q)found}
    builtin compadd \"\$@\"
}
over() { print ASKED-AND-ANSWERED }
tell() { comppostfuncs=(over) }
compprefuncs=(tell)
zstyle ':completion:*' completer _complete
bindkey '^I' complete-word
setopt no_list_ambiguous no_auto_menu
print READY-TO-\BE-ASKED"
zpty -r asked said '*READY-TO-BE-ASKED*'
zpty -n -w asked "$2"$'\t'
zpty -r asked said '*ASKED-AND-ANSWERED*'
zpty -d asked
sort -u $found
rm -f $found
