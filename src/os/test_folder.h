// A fresh folder for one test, removed with all it holds.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace bedplate::os {

// False on a machine, or in a root folder of somebody's making, whose paths are closed to all users
// but root: a test that gives up its rights would then find nothing.
inline bool others_may_enter_root() {
  return (std::filesystem::status("/").permissions() & std::filesystem::perms::others_exec) !=
         std::filesystem::perms::none;
}

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bedplate-test-XXXXXX").string();
    BEDPLATE_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;  // a test that made a part unreadable still passes
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace bedplate::os
