# What the scripts that start guests share.

# needs NAME PROGRAM...: ends the script NAME, with a message, if a program is not installed.
needs() {
    local name=$1 program
    shift
    for program; do
        command -v "$program" >/dev/null || {
            echo "$name: skipped: $program is not installed"
            exit 0
        }
    done
}
