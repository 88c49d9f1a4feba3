# Completion of rebal for fish: rebal completion fish | source
function __rebal_complete
    set -l found (rebal completion fish --complete (commandline -cp | string collect) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command rebal --no-files --arguments '(__rebal_complete)'
