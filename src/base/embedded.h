// A file whose bytes were built into the program; see bedplate_embed() in cmake/Bedplate.cmake.
#pragma once

#include <span>
#include <string_view>

namespace bedplate {

struct EmbeddedFile {
  std::string_view path;  // relative, as it was named in CMake
  std::string_view bytes;
};

}  // namespace bedplate
