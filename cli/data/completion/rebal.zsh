#compdef rebal
# Completion of rebal for zsh: source <(rebal completion zsh)
_rebal() {
    local line="${(j: :)words[1,CURRENT-1]} ${PREFIX}" each
    local -a values shown
    for each in "${(@f)$(${words[1]} completion zsh --complete "$line" 2>/dev/null)}"; do
        [[ -n $each ]] || continue
        each=${each%$'\t'}
        values+=("${each%%$'\t'*}")
        shown+=("${each/$'\t'/  -- }")
    done
    if (( $#values == 0 )); then
        _files
    elif [[ ${values[1]} == */ ]]; then
        compadd -S '' -- "${values[@]}"
    else
        compadd -l -d shown -- "${values[@]}"
    fi
}
if [[ ${funcstack[1]} == _rebal ]]; then
    _rebal "$@"
else
    compdef _rebal rebal
fi
