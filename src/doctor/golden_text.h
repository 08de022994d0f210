// Compares a text with a file that is kept in the repository. With BEDPLATE_UPDATE_GOLDEN set in
// the environment the file is written instead: tools/update_golden.sh does that; the difference is
// then read in `git diff` before it is committed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace bedplate::doctor {

inline void expect_golden(const std::string& text, const std::filesystem::path& file) {
  if (std::getenv("BEDPLATE_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return;
  }
  std::ifstream in(file, std::ios::binary);
  ASSERT_TRUE(in) << file << " is missing: run tools/update_golden.sh";
  std::stringstream expected;
  expected << in.rdbuf();
  EXPECT_EQ(text, expected.str()) << file << " differs; if that is meant: tools/update_golden.sh";
}

}  // namespace bedplate::doctor
