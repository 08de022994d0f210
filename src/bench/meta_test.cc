#include "bench/meta.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/error.h"
#include "os/test_folder.h"

namespace bedplate::bench {
namespace {

using ::testing::HasSubstr;

std::ptrdiff_t entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

class Meta : public ::testing::TestWithParam<Folders> {
 protected:
  MetaOptions options() const {
    return {.folder = folder_.path(),
            .files = 203,
            .bytes = 5000,
            .threads = 4,
            .reserve = 0,
            .folders = GetParam()};
  }
  Error error_of(const MetaOptions& options) {
    try {
      measure_meta(options);
    } catch (const Error& error) {
      return error;
    }
    return {Code::kInternal, "nothing was thrown"};
  }
  os::TestFolder folder_;
};

TEST_P(Meta, TakesEachFileThroughItsLife) {
  for (const std::int64_t bytes : {0L, 3L, 5000L}) {
    MetaOptions how = options();
    how.bytes = bytes;
    const MetaResult result = measure_meta(how);
    ASSERT_EQ(result.phases.size(), 6u);
    for (const char* name : {"create", "stat", "open and read", "rename", "remove"}) {
      const Figures& figures = result.of(name).figures;
      EXPECT_EQ(figures.calls, 203) << name;
      EXPECT_EQ(figures.amount, 203) << name;
      EXPECT_GT(figures.median, 0) << name;
      EXPECT_LE(figures.p99, figures.longest) << name;
    }
    const Figures& list = result.of("list").figures;
    EXPECT_GE(list.calls, 4);
    EXPECT_GE(list.amount, GetParam() == Folders::kShared ? 4 * 203 : 203);
  }
  EXPECT_EQ(entries(folder_.path()), 0);
}

TEST_P(Meta, RemovesAllWhenItIsToldToEnd) {
  MetaOptions how = options();
  how.files = 100'000;
  how.bytes = 0;
  bool begun = false;
  how.watch.progress = [&](std::string_view, double) { begun = true; };
  how.watch.stopped = [&] { return begun; };
  const Error error = error_of(how);
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_THAT(error.what(), HasSubstr("interrupted"));
  EXPECT_EQ(entries(folder_.path()), 0);
}

TEST_P(Meta, RefusesWhatMakesNoSense) {
  MetaOptions how = options();
  how.files = 3;  // for four threads
  EXPECT_EQ(error_of(how).code(), Code::kInvalid);
  how = options();
  how.bytes = -1;
  EXPECT_EQ(error_of(how).code(), Code::kInvalid);
  how = options();
  how.folder = folder_.path() / "missing";
  EXPECT_EQ(error_of(how).code(), Code::kNotFound);
  how = options();
  how.bytes = kGiB;
  how.files = 1'000'000;
  EXPECT_EQ(error_of(how).code(), Code::kNoSpace);
  EXPECT_EQ(entries(folder_.path()), 0);
}

INSTANTIATE_TEST_SUITE_P(Folders, Meta, ::testing::Values(Folders::kOwn, Folders::kShared),
                         [](const auto& info) {
                           return info.param == Folders::kOwn ? "own" : "shared";
                         });

}  // namespace
}  // namespace bedplate::bench
