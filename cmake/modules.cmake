# penstock_module(NAME SOURCES file... [DEPENDS module...] [PRIVATE third-party target...])
#
# One static library per module. DEPENDS are modules in rows above (design, section 2); PRIVATE are third-party targets
# that only this module may include.
function(penstock_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(penstock_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(penstock_${name} PUBLIC penstock_options)
  foreach(module ${ARG_DEPENDS})
    target_link_libraries(penstock_${name} PUBLIC penstock_${module})
  endforeach()
  target_link_libraries(penstock_${name} PRIVATE ${ARG_PRIVATE})
endfunction()

# penstock_test(NAME [SOURCES file...] [LINK target...] [RANKS n...] [LABELS label...] [TIMEOUT seconds] [SANITIZED filter]
#              [SERIAL])
#
# One GoogleTest executable `test_NAME` from NAME.cpp (or SOURCES). Without RANKS it runs as one process; with RANKS it
# runs once per count under mpirun, as `test_NAME_n`, with the rank-aware listener of tests/support/mpi_main.cpp.
# Sanitizers, which make tests several times slower, run the least and the greatest count, and of wide grids what the
# GoogleTest filter SANITIZED names. Each test says how many of CTest's places it takes, of which there are two a core
# (scripts/environment.sh); SERIAL ones, whose times are looked at, run alone.
function(penstock_test name)
  if(NOT PENSTOCK_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT;SANITIZED" "SOURCES;LINK;RANKS;LABELS" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.cpp)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(PENSTOCK_SANITIZER)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")  # by how much slower depends on the test
    list(LENGTH ARG_RANKS counts)
    if(counts GREATER 2)
      list(GET ARG_RANKS 0 -1 ARG_RANKS)
    endif()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(test_${name} ${ARG_SOURCES})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest Threads::Threads)
  if(ARG_RANKS)
    target_link_libraries(test_${name} PRIVATE penstock_test_mpi_main)
    foreach(ranks ${ARG_RANKS})
      add_test(NAME test_${name}_${ranks}
               COMMAND ${CMAKE_SOURCE_DIR}/scripts/mpirun.sh -n ${ranks} $<TARGET_FILE:test_${name}>
               WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
      set_tests_properties(test_${name}_${ranks} PROPERTIES LABELS "${ARG_LABELS};ranks_${ranks}" TIMEOUT ${ARG_TIMEOUT}
                           PROCESSORS 2 RUN_SERIAL ${ARG_SERIAL})
    endforeach()
  else()
    target_link_libraries(test_${name} PRIVATE GTest::gmock_main)
    add_test(NAME test_${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(test_${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2
                         RUN_SERIAL ${ARG_SERIAL})
    if(PENSTOCK_SANITIZER AND ARG_SANITIZED)
      set_tests_properties(test_${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=${ARG_SANITIZED}")
    endif()
  endif()
endfunction()

# penstock_fuzzer(NAME LINK target...): the libFuzzer executable `fuzz_NAME` from fuzz_NAME.cpp, in a clang build with
# PENSTOCK_FUZZERS; scripts/fuzz.sh runs each for a bounded time on the corpus in corpus_NAME/.
function(penstock_fuzzer name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  if(NOT PENSTOCK_FUZZERS)
    return()
  endif()
  add_executable(fuzz_${name} fuzz_${name}.cpp)
  target_link_libraries(fuzz_${name} PRIVATE ${ARG_LINK})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers fuzz_${name})
endfunction()

# penstock_benchmark(NAME LINK target...): the Google Benchmark executable `benchmark_NAME` from NAME.cpp.
function(penstock_benchmark name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(benchmark_${name} ${name}.cpp)
  target_link_libraries(benchmark_${name} PRIVATE ${ARG_LINK} benchmark::benchmark Threads::Threads)
endfunction()
