# Helpers that give every target the same properties; nothing here is global.

# Compile settings of our own code: language level, warnings, sanitizers.
add_library(rnbd_settings INTERFACE)
target_compile_features(rnbd_settings INTERFACE cxx_std_23)
target_include_directories(rnbd_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(rnbd_settings INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Wnon-virtual-dtor -Woverloaded-virtual
  -fno-strict-aliasing $<$<BOOL:${RNBD_WERROR}>:-Werror>
  # g++ 12 sees overlaps in std::string at -O3 that are not there (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(RNBD_SANITIZE)
  # g++ sees uninitialized members in std::regex and std::function where the sanitizers look on (its bug 105562).
  target_compile_options(rnbd_settings INTERFACE -fsanitize=${RNBD_SANITIZE} -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # AddressSanitizer stops at null pointers as well, without a check of each one, which takes a fifth of the compiler's time.
  if(RNBD_SANITIZE MATCHES "address" AND RNBD_SANITIZE MATCHES "undefined")
    target_compile_options(rnbd_settings INTERFACE -fno-sanitize=null)
  endif()
  target_link_options(rnbd_settings INTERFACE -fsanitize=${RNBD_SANITIZE})
endif()
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

# rnbd_probes(SOURCES...): sources of this folder that have static probes (rtrs/base/probe.h).
function(rnbd_probes)
  if(RNBD_HAVE_PROBES)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS RNBD_PROBES)
  endif()
endfunction()

# rnbd_test(NAME LABELS... SOURCES... LINK...): one Catch2 program, registered with CTest.
function(rnbd_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_property(TARGET ${name} PROPERTY RNBD_TEST ON)
  if("unit" IN_LIST ARG_LABELS)
    # Catch2's checks take longer to optimize than to run.
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE rnbd_test_main ${ARG_LINK})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
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
