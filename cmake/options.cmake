# Language level, warnings and sanitizers, on one interface target that every target of the project links.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

add_library(penstock_options INTERFACE)
target_include_directories(penstock_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(penstock_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
                       -Wcast-qual -Woverloaded-virtual -Wno-missing-field-initializers)
# g++ 12 sees overlaps in std::string's own concatenation (its bug 105651).
target_compile_options(penstock_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# A unit of several sources (CMAKE_UNITY_BUILD) names its types from what the compiler takes for a header.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(penstock_options INTERFACE -Wno-subobject-linkage)
endif()
# Contraction of a*b+c into one rounding would depend on the compiler's inlining: the bits must not (design, sentence 4).
target_compile_options(penstock_options INTERFACE -ffp-contract=off)
if(PENSTOCK_WARNINGS_ARE_ERRORS)
  target_compile_options(penstock_options INTERFACE -Werror)
endif()

if(PENSTOCK_SANITIZER STREQUAL "address")
  # AddressSanitizer sees itself what these four would check with much code: null, misaligned and too small objects.
  target_compile_options(penstock_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                         -fno-sanitize=null,alignment,vptr,object-size -fno-omit-frame-pointer)
  target_link_options(penstock_options INTERFACE -fsanitize=address,undefined)
elseif(PENSTOCK_SANITIZER STREQUAL "thread")
  target_compile_options(penstock_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(penstock_options INTERFACE -fsanitize=thread)
  # Debian's oneTBB is not instrumented: loops run on std::thread instead (kernels/workers).
  target_compile_definitions(penstock_options INTERFACE PENSTOCK_STANDARD_THREADS)
elseif(PENSTOCK_SANITIZER)
  message(FATAL_ERROR "PENSTOCK_SANITIZER is '${PENSTOCK_SANITIZER}'; it takes 'address', 'thread' or nothing")
endif()

if(PENSTOCK_FUZZERS)
  target_compile_options(penstock_options INTERFACE -fsanitize=fuzzer-no-link,address)
  target_link_options(penstock_options INTERFACE -fsanitize=address)
endif()
