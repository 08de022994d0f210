// A recorded machine in the making, for one test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string_view>

#include "os/host_root.h"
#include "os/test_folder.h"

namespace bedplate::os {

class TestHost : public ::testing::Test {
 protected:
  // put("proc/self/cgroup", "0::/\n")
  void put(const std::filesystem::path& path, std::string_view text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
  }

  TestFolder folder_;
  HostRoot host_{folder_.path()};
};

}  // namespace bedplate::os
