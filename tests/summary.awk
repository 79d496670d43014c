# Passes on what `cargo test` prints. At the end it adds up the lines in which each test binary counts its tests, and says
# once more which tests failed, each with the beginning and the end of its message: there the reason stands.

BEGIN { FIRST = 300; LAST = 500 }

{ print; fflush() }

/^test result: / { passed += $4; failed += $6; ignored += $8 }

# The messages of a test binary stand between its first line `failures:` and its second one.
/^failures:$/ { within = !within; inside = 0; next }
/^test result: / { within = inside = 0 }
within && /^---- .* ----$/ { order[++failures] = $2; inside = 1; next }
# A backtrace tells less than what stands before it.
/^stack backtrace:$/ { inside = 0 }
inside && NF {
    message[failures] = message[failures] " " $0
}

END {
    printf "\ntotal: %d passed, %d failed, %d skipped\n", passed, failed, ignored
    for (i = 1; i <= failures; i++)
        printf "failed: %s:%s\n", order[i], shortened(message[i])
}

function shortened(text) {
    if (length(text) <= FIRST + LAST)
        return text
    return substr(text, 1, FIRST) " [...] " substr(text, length(text) - LAST + 1)
}
