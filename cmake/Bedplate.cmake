# The house rules of the build, in one place: how a room, a part, a test, an embedded file is declared.

include(CMakeDependentOption)

option(BEDPLATE_TESTS "build the tests" ON)
# A sixth of the time of a build from nothing (GCC 12). Off where the tests are built: a file that lacks an include shows there.
cmake_dependent_option(BEDPLATE_PRECOMPILE "precompiled headers of the standard library and fmt" ON "NOT BEDPLATE_TESTS" OFF)
option(BEDPLATE_WERROR "warnings are errors" OFF)
option(BEDPLATE_WITH_BPF "BPF programs (needs libbpf and clang)" ON)
option(BEDPLATE_WITH_URING "reads by io_uring (needs liburing)" ON)
option(BEDPLATE_WITH_REMOTE "stores behind HTTP and S3 (needs libcurl, OpenSSL and pugixml)" ON)
option(BEDPLATE_WITH_DECODE "pictures decoded by the loader (needs libjpeg-turbo and libpng)" ON)
option(BEDPLATE_WITH_PYTHON "the extension module of the Python package (needs nanobind)" OFF)
option(BEDPLATE_FUZZ "the fuzzers too, for clang's libFuzzer (tools/fuzz.sh)" OFF)
set(BEDPLATE_SANITIZE "" CACHE STRING "sanitizers, as for -fsanitize=")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # "a" + std::string warns falsely (GCC bug 105651, mended in 13).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(BEDPLATE_WERROR)
  add_compile_options(-Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # These follow values through inlined library code and are often wrong about it: shown, no errors.
    add_compile_options(-Wno-error=array-bounds -Wno-error=stringop-overflow -Wno-error=stringop-overread
                        -Wno-error=maybe-uninitialized -Wno-error=free-nonheap-object)
  endif()
endif()
if(BEDPLATE_SANITIZE)
  add_compile_options(-fsanitize=${BEDPLATE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BEDPLATE_SANITIZE})
endif()

if(BEDPLATE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "BEDPLATE_FUZZ needs clang: use tools/fuzz.sh, or -DCMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)

# What a missing library would have given: name, "on" or the reason and the package that would bring it.
# `bedplate version --features` prints this table.
function(bedplate_feature name state)
  set_property(GLOBAL APPEND PROPERTY BEDPLATE_FEATURES "${name}|${state}")
endfunction()

if(BEDPLATE_WITH_BPF)
  pkg_check_modules(libbpf IMPORTED_TARGET libbpf)
  find_program(BPF_CLANG NAMES clang clang-19 clang-16 clang-14)
  find_program(BPFTOOL bpftool PATHS /usr/sbin /sbin)
endif()
if(BEDPLATE_WITH_BPF AND libbpf_FOUND AND BPF_CLANG)
  set(BEDPLATE_HAVE_BPF ON)
  bedplate_feature(bpf on)
elseif(BEDPLATE_WITH_BPF)
  bedplate_feature(bpf "off: libbpf-dev or clang was not found; block latency, run-queue delay and reclaim come from /proc")
else()
  bedplate_feature(bpf "off: built with BEDPLATE_WITH_BPF=OFF; block latency, run-queue delay and reclaim come from /proc")
endif()

if(BEDPLATE_WITH_URING)
  pkg_check_modules(liburing IMPORTED_TARGET liburing)
endif()
if(BEDPLATE_WITH_URING AND liburing_FOUND)
  set(BEDPLATE_HAVE_URING ON)
  bedplate_feature(io_uring on)
elseif(BEDPLATE_WITH_URING)
  bedplate_feature(io_uring "off: liburing-dev was not found; files are read by threads")
else()
  bedplate_feature(io_uring "off: built with BEDPLATE_WITH_URING=OFF; files are read by threads")
endif()

if(BEDPLATE_WITH_REMOTE)
  pkg_check_modules(libcurl IMPORTED_TARGET libcurl)
  pkg_check_modules(openssl IMPORTED_TARGET openssl)
  pkg_check_modules(pugixml IMPORTED_TARGET pugixml)
endif()
if(BEDPLATE_WITH_REMOTE AND libcurl_FOUND AND openssl_FOUND AND pugixml_FOUND)
  set(BEDPLATE_HAVE_REMOTE ON)
  bedplate_feature(remote on)
elseif(BEDPLATE_WITH_REMOTE)
  bedplate_feature(remote "off: libcurl4-openssl-dev, libssl-dev or libpugixml-dev was not found; no stores behind HTTP and S3")
else()
  bedplate_feature(remote "off: built with BEDPLATE_WITH_REMOTE=OFF; no stores behind HTTP and S3")
endif()

if(BEDPLATE_WITH_DECODE)
  pkg_check_modules(libjpeg IMPORTED_TARGET libjpeg>=2.0)
  pkg_check_modules(libpng IMPORTED_TARGET libpng)
endif()
if(BEDPLATE_WITH_DECODE AND libjpeg_FOUND AND libpng_FOUND)
  set(BEDPLATE_HAVE_DECODE ON)
  bedplate_feature(decode on)
elseif(BEDPLATE_WITH_DECODE)
  bedplate_feature(decode "off: libjpeg-dev (libjpeg-turbo) or libpng-dev was not found; no pictures are decoded")
else()
  bedplate_feature(decode "off: built with BEDPLATE_WITH_DECODE=OFF; no pictures are decoded")
endif()

# Set by `pip install`; the other builds need no Python.
if(BEDPLATE_WITH_PYTHON)
  find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
  if(Python_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
                    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_package(nanobind CONFIG)
  endif()
endif()
if(BEDPLATE_WITH_PYTHON AND nanobind_FOUND)
  set(BEDPLATE_HAVE_PYTHON ON)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  bedplate_feature(python on)
elseif(BEDPLATE_WITH_PYTHON)
  bedplate_feature(python "off: Python 3.10 or newer, its headers or nanobind was not found; no bedplate.data")
endif()

# bedplate_room(NAME SOURCES a.cc b.cc USES base os LIBS fmt::fmt): one static library bedplate_NAME.
function(bedplate_room name)
  cmake_parse_arguments(R "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_library(bedplate_${name} STATIC ${R_SOURCES})
  target_include_directories(bedplate_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                                     ${PROJECT_BINARY_DIR}/generated)
  foreach(used ${R_USES})
    target_link_libraries(bedplate_${name} PUBLIC bedplate_${used})
  endforeach()
  target_link_libraries(bedplate_${name} PUBLIC ${R_LIBS})
  if(BEDPLATE_PRECOMPILE)
    target_precompile_headers(bedplate_${name} PRIVATE
      <algorithm> <atomic> <chrono> <cstring> <filesystem> <functional> <map> <memory> <mutex> <optional> <span> <string>
      <string_view> <unordered_map> <variant> <vector> <fmt/format.h>)
  endif()
endfunction()

# bedplate_built_quickly(TARGET): for code that runs once a command, or in a test: -O2 is a fifth of its build.
function(bedplate_built_quickly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# bedplate_part(ROOM KIND FILE SYMBOL): adds the file to the room and its descriptor to the room's table of KIND.
# The file ends in `constexpr <Kind> SYMBOL = {…}` (declared extern through the generated table); see src/doctor/rules.
function(bedplate_part room kind file symbol)
  target_sources(bedplate_${room} PRIVATE ${file})
  set_property(GLOBAL APPEND PROPERTY BEDPLATE_PARTS_${room}_${kind} ${symbol})
endfunction()

# bedplate_part_table(ROOM KIND HEADER TYPE): after the last part, writes generated/ROOM/KIND_table.cc with
# `std::span<const TYPE* const> bedplate::ROOM::all_KIND()`. The order is the order of the lines in CMakeLists.txt.
function(bedplate_part_table room kind header type)
  get_property(symbols GLOBAL PROPERTY BEDPLATE_PARTS_${room}_${kind})
  set(text "// Generated by bedplate_part_table() from src/${room}/CMakeLists.txt.\n#include \"${header}\"\n\n")
  string(APPEND text "namespace bedplate::${room} {\n")
  foreach(symbol ${symbols})
    string(APPEND text "extern const ${type} ${symbol};\n")
  endforeach()
  string(APPEND text "std::span<const ${type}* const> all_${kind}() {\n  static constexpr const ${type}* kTable[] = {\n")
  foreach(symbol ${symbols})
    string(APPEND text "      &${symbol},\n")
  endforeach()
  string(APPEND text "  };\n  return kTable;\n}\n}  // namespace bedplate::${room}\n")
  set(out ${PROJECT_BINARY_DIR}/generated/${room}/${kind}_table.cc)
  file(CONFIGURE OUTPUT ${out} CONTENT "${text}" @ONLY)
  target_sources(bedplate_${room} PRIVATE ${out})
endfunction()

# bedplate_tests(ROOM a_test.cc …): one test binary ROOM_tests, every case known to ctest by its own name.
function(bedplate_tests room)
  if(NOT BEDPLATE_TESTS)
    return()
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${room}_tests ${ARGN})
  target_link_libraries(${room}_tests PRIVATE bedplate_${room} GTest::gmock GTest::gtest_main)
  bedplate_built_quickly(${room}_tests)
  target_compile_options(${room}_tests PRIVATE -Wno-shadow)  # GoogleTest's own macros nest a lambda's `info`
  target_compile_definitions(${room}_tests PRIVATE BEDPLATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${room}_tests DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120 LABELS ${room})
endfunction()

# bedplate_embed(TARGET SYMBOL ROOT FILES…): the files' bytes as `std::span<const EmbeddedFile> bedplate::SYMBOL()`.
function(bedplate_embed target symbol root)
  set(out ${PROJECT_BINARY_DIR}/generated/embedded/${symbol}.cc)
  set(sources "")
  foreach(file ${ARGN})
    list(APPEND sources ${root}/${file})
  endforeach()
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DSYMBOL=${symbol} -DROOT=${root} "-DFILES=${ARGN}" -P
            ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
    DEPENDS ${sources} ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
