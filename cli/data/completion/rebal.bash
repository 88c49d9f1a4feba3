# Completion of rebal for bash 4.4 or newer: source <(rebal completion bash)
_rebal_completion() {
    local line=${COMP_LINE:0:COMP_POINT} value known part
    # Bash takes `host:port` and `key=value` for several words: only the last part is replaced.
    local word=${line##*[[:space:]]}
    local kept=${word%"${word##*[:=]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r value known; do
        part=${value#"$kept"}
        [[ $part == */ ]] && compopt -o nospace
        printf -v part %q "$part"
        COMPREPLY+=("$part")
    done < <("$1" completion bash --complete "$line" 2>/dev/null)
}
complete -o default -o bashdefault -F _rebal_completion rebal
