# Sourced by the scripts that build and test: the compiler cache (where there is one), what sanitizers need to know, and
# how many tests run at once.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  # The same sources give the same objects in every folder.
  export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
fi
export ASAN_OPTIONS="detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0:${LSAN_OPTIONS:-}"
export TSAN_OPTIONS="history_size=7:suppressions=$PWD/tests/support/tsan.supp:${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
# Most tests are ranks that wait for each other: two places a core, of which each test says how many it takes.
export CTEST_PARALLEL_LEVEL=$((2 * $(nproc)))
