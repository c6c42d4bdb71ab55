# Runs all tests of the workspace. One that fails among all the others is run once more alone: many
# of them start servers and kill them, on as few cores as there are. What passes then is named last,
# as flaky: that is a fault to mend, in the test or in what it tests. Where more than a few fail, a
# test program itself dies, or a test fails alone too, all fails.

RETRIED_MAX=3

# One more at a time than there are processors: many wait, for time-outs and for who was killed.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) + 1))}"

all_tests() {
    told=$env_dir/tests.log
    tests_told "$told" && return 0
    failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$told" | sort -u)
    count=$(printf '%s' "$failed" | grep -c '') || stop "tests failed"
    programs=$(sed -n 's/^error: \([0-9]*\) targets\{0,1\} failed:$/\1/p' "$told")
    [ "$count" -le "$RETRIED_MAX" ] &&
        [ "$(grep -c '^test result: FAILED' "$told")" = "$programs" ] ||
        stop "tests failed"
    # Examples in documentation have spaces in their names, and nothing in them that changes.
    case $failed in *' '*) stop "tests failed" ;; esac
    say "failed among the others, run once more alone:" $failed
    tests_told "$told" --lib --bins --tests -- --exact --test-threads 1 $failed &&
        [ "$(grep -c '^test .* \.\.\. ok$' "$told")" -ge "$count" ] ||
        stop "tests failed, alone too"
    say "flaky: passed alone, failed before:" $failed
}

# tests_told FILE ARGUMENT...: what the tests say goes to FILE too; true when all passed.
tests_told() {
    log=$1
    shift
    rm -f "$log.passed"
    { cargo test --workspace --no-fail-fast "$@" 2>&1 && : >"$log.passed"; } | tee "$log"
    [ -f "$log.passed" ]
}
