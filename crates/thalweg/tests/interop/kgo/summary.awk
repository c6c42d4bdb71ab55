# Counts what a `-test.v` run of a Go test binary says, and tells each failure and skip with its
# first line of reason. A test that began and never ended counts as a failure.
function last_of(name) { return name in said ? said[name] : "" }
/^=== RUN +/ { begun[$3] = 1; delete ended[$3]; delete said[$3] }
/^=== (RUN|CONT|NAME) +/ { current = $3; next }
/^ *--- (PASS|SKIP|FAIL): / {
    verdict = substr($2, 1, 4)
    ended[$3] = 1
    count[verdict]++
    if (verdict != "PASS") lines[++told] = sprintf("%s %s: %s", verdict, $3, last_of($3))
    next
}
/^panic: |^fatal error: / { died = $0 }
/^ +[a-z_0-9]+\.go:[0-9]+: / {
    if (!(current in said) && $0 !~ /deleting (topic|group)/) {
        sub(/^ +/, "")
        said[current] = $0
    }
}
END {
    for (name in begun) if (!(name in ended)) {
        count["FAIL"]++
        lines[++told] = sprintf("FAIL %s: did not end; %s", name, last_of(name))
    }
    for (i = 1; i <= told; i++) print lines[i]
    if (died != "") { print died; if (!count["FAIL"]) count["FAIL"] = 1 }
    printf "%d passed, %d skipped themselves, %d failed\n", count["PASS"], count["SKIP"], count["FAIL"]
    exit count["FAIL"] > 0 || !count["PASS"]
}
