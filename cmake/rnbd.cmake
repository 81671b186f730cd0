# Helpers that give every target the same properties; nothing here is global.

# Compile settings of our own code: language level, warnings, sanitizers.
add_library(rnbd_settings INTERFACE)
target_compile_features(rnbd_settings INTERFACE cxx_std_23)
target_include_directories(rnbd_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(rnbd_settings INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Wnon-virtual-dtor -Woverloaded-virtual
  -fno-strict-aliasing $<$<BOOL:${RNBD_WERROR}>:-Werror>
  # g++ 12 sees overlaps in std::string at -O3 that are not there (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # libstdc++ 12 deprecates what it uses itself, and ibv_reg_mr() is a macro that mixes enums.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations -Wno-deprecated-enum-enum-conversion>)
# What is sanitized, C programs of tests too.
add_library(rnbd_sanitizers INTERFACE)
target_link_libraries(rnbd_settings INTERFACE rnbd_sanitizers)
set(sanitizer_flags "")
if(RNBD_SANITIZE)
  set(sanitizer_flags -fsanitize=${RNBD_SANITIZE})
  # The check of vtables makes a pipe to look at memory: it sees faults that are not there while a test leaves the process
  # no descriptor.
  # g++ sees uninitialized members in std::regex and std::function where the sanitizers look on (its bug 105562).
  target_compile_options(rnbd_sanitizers INTERFACE ${sanitizer_flags} -fno-sanitize=vptr -fno-omit-frame-pointer
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
# librnbd and what loads it share one AddressSanitizer. That is how gcc links it; clang does so when it is asked, and
# does not say where it will be found.
set(sanitizer_library "")
if(RNBD_SANITIZE MATCHES "address" AND NOT RNBD_FUZZ)
  set(name libasan.so)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(name libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so)
  endif()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE sanitizer_library
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    cmake_path(GET sanitizer_library PARENT_PATH folder)
    list(APPEND sanitizer_flags -shared-libasan -Wl,-rpath,${folder})
  endif()
endif()
target_link_options(rnbd_sanitizers INTERFACE ${sanitizer_flags})
# What AddressSanitizer knows of each variable has three addresses: to relocate them takes a fifth of what a program's start
# costs, and tests start thousands.
if(RNBD_SANITIZE MATCHES "address")
  string(APPEND CMAKE_EXE_LINKER_FLAGS " -no-pie")
endif()
# For tests that compile a program, or load what is sanitized into one that is not.
set(RNBD_SANITIZER_FLAGS "${sanitizer_flags}" CACHE INTERNAL "What a program that uses librnbd is linked with")
set(RNBD_SANITIZER_LIBRARY "${sanitizer_library}" CACHE INTERNAL "AddressSanitizer's shared library")
# What a request passes through is spread over many small files: the products are optimized as a whole when they are
# linked. The objects hold ordinary code too, with which tests are linked in less time; what only tests have is ordinary.
set(RNBD_OPTIMIZE_LINK OFF)
if(RNBD_LTO STREQUAL "AUTO")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT RNBD_SANITIZE AND CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|None)$")
    set(RNBD_OPTIMIZE_LINK ON)
  endif()
elseif(RNBD_LTO)
  set(RNBD_OPTIMIZE_LINK ON)
endif()
if(RNBD_OPTIMIZE_LINK)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    message(FATAL_ERROR "RNBD_LTO=ON: only with gcc")
  endif()
  target_compile_options(rnbd_settings INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:RNBD_TEST>>>:-flto=auto -ffat-lto-objects>)
  string(APPEND CMAKE_EXE_LINKER_FLAGS " -fno-lto")
endif()
# librtrs and librnbd are linked into shared objects by their users.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# rnbd_library(NAME SOURCES... [LINK targets...]): one static library per box of the architecture.
function(rnbd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC rnbd_settings ${ARG_LINK})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE rnbd_settings ${ARG_LINK})
  endif()
endfunction()

# rnbd_product(TARGETS...): optimized as a whole when linked.
function(rnbd_product)
  if(RNBD_OPTIMIZE_LINK)
    foreach(target IN LISTS ARGN)
      # g++ 12 sees lengths of std::string there that it cannot have (GCC bug 105651).
      target_link_options(${target} PRIVATE -flto=auto -Wno-stringop-overflow)
    endforeach()
  endif()
endfunction()

# rnbd_slow_to_compile(TARGETS...): command lines, files of settings and the like, which take longer to optimize than to run
# where sanitizers look on. Fuzzers run them for long.
function(rnbd_slow_to_compile)
  if(RNBD_SANITIZE AND NOT RNBD_FUZZ)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()

# rnbd_compiled_alone(SOURCES...): sources of this folder that share names with others of their target, which they keep to
# themselves. Where several are compiled as one (CMAKE_UNITY_BUILD), these are not.
function(rnbd_compiled_alone)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# rnbd_probes(SOURCES...): sources of this folder that have static probes (rtrs/base/probe.h).
function(rnbd_probes)
  if(RNBD_HAVE_PROBES)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS RNBD_PROBES)
  endif()
endfunction()

# rnbd_test_code(TARGET): checks take longer to optimize than to run. What they check are libraries, as optimized, and as
# closely watched by UndefinedBehaviorSanitizer, as ever.
function(rnbd_test_code target)
  set_property(TARGET ${target} PROPERTY RNBD_TEST ON)
  target_compile_options(${target} PRIVATE -O0)
  if(RNBD_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  if(TARGET rnbd_test_headers AND NOT target STREQUAL "rnbd_test_headers")
    target_precompile_headers(${target} REUSE_FROM rnbd_test_headers)
  endif()
endfunction()

# In seconds. What hangs ends by it: a sanitized build beside other tests on a slow machine is far from it.
set(RNBD_TEST_LIMIT 2400)

# rnbd_test(NAME LABELS... SOURCES... LINK... [ALONE...]): one Catch2 program, registered with CTest. ALONE: those of SOURCES
# that are rnbd_compiled_alone().
function(rnbd_test name)
  cmake_parse_arguments(ARG "" "" "LABELS;SOURCES;LINK;ALONE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_ALONE)
    rnbd_compiled_alone(${ARG_ALONE})
  endif()
  rnbd_test_code(${name})
  target_link_libraries(${name} PRIVATE rnbd_test_main ${ARG_LINK})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${RNBD_TEST_LIMIT} SKIP_RETURN_CODE 77)
  if("sim" IN_LIST ARG_LABELS)  # computes all the time: see tests/integration/CMakeLists.txt
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# rnbd_fuzzer(NAME SOURCES... LINK...): one libFuzzer target; its corpus is tests/fuzz/corpus/NAME.
function(rnbd_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  if(RNBD_FUZZ)
    add_executable(fuzz_${name} ${ARG_SOURCES})
    target_link_libraries(fuzz_${name} PRIVATE rnbd_settings ${ARG_LINK})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers fuzz_${name})
  endif()
endfunction()
