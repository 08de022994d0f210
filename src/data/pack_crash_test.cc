// Packing that is killed, again and again: nothing lost, nothing stale, nothing half.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "base/clock.h"
#include "data/pack_fixture.h"

namespace bedplate::data {
namespace {

using Existing = PackOptions::Existing;

class PackCrash : public PackTest {
 protected:
  static constexpr int kKills = 200;

  // True when it ended by itself before `after` had passed.
  bool pack_and_kill(const std::string& from, const std::string& to, const PackOptions& options,
                     Nanos after) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        pack_all({from}, to, options);
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fputs(error.what(), stderr);
        ::_exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(after / kMicrosecond));  // the moment is what is tested
    ::kill(child, SIGKILL);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
  }

  void expect_only_whole_shards(const std::string& folder,
                                const std::map<std::string, std::string>& whole) {
    for (const auto& [name, bytes] : files(folder)) {
      if (name.starts_with(".bedplate-tmp-")) continue;
      if (name == "pack.json") {
        EXPECT_TRUE(bytes.ends_with("}\n")) << bytes;
      } else {
        ASSERT_EQ(bytes, whole.at(name)) << name;
      }
    }
  }
};

TEST_F(PackCrash, KilledAtTwoHundredMomentsThePackIsTheSameAsUndisturbed) {
  write_pictures("in", 40);
  const PackOptions options{.target = Target::kPacked, .shard_samples = 4};
  const Nanos begin = real_clock().now();
  pack_all({"in"}, "whole", options);
  const Nanos undisturbed =
      std::clamp<Nanos>(real_clock().now() - begin, 2 * kMillisecond, 40 * kMillisecond);
  const auto whole = files("whole");
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int done = 0;
  int while_writing = 0;  // a temporary was left
  for (int kills = 0; kills < kKills;) {
    // Later and later, so that some come to their end however slow this build is.
    const auto latest = static_cast<std::uint64_t>(undisturbed * (1 + kills / 100));
    const bool ended = pack_and_kill("in", "out", options, static_cast<Nanos>(random() % latest));
    ASSERT_NO_FATAL_FAILURE(expect_only_whole_shards("out", whole));
    if (!ended) {
      ++kills;
      const auto left = files("out");
      while_writing += std::ranges::any_of(left, [](const auto& file) {
        return file.first.starts_with(".bedplate-tmp-") && file.first != ".bedplate-tmp-lock";
      });
      continue;
    }
    ASSERT_EQ(files("out"), whole);
    std::filesystem::remove_all(path("out"));
    ++done;
  }
  pack_all({"in"}, "out", options);
  EXPECT_EQ(files("out"), whole);  // and no temporary of two hundred killed ones
  EXPECT_GT(while_writing, kKills / 10);
  EXPECT_GT(done, 0) << "no run ever came to its end between kills";
}

// An old pack lies there and is overwritten: none of its shards may pass for one of the new pack.
TEST_F(PackCrash, KilledWhileOverwritingNoOldShardIsTakenForANewOne) {
  write_pictures("old", 12);
  write_pictures("new", 16);
  const PackOptions old_options{.target = Target::kWebDataset, .shard_samples = 3};
  PackOptions options = old_options;
  const Nanos begin = real_clock().now();
  pack_all({"new"}, "whole", options);
  const Nanos undisturbed =
      std::clamp<Nanos>(real_clock().now() - begin, 2 * kMillisecond, 40 * kMillisecond);
  const auto whole = files("whole");
  std::mt19937_64 random(7);
  for (int i = 0; i < 25; ++i) {
    std::filesystem::remove_all(path("out"));
    pack_all({"old"}, "out", old_options);
    options.existing = Existing::kOverwrite;
    const Nanos after = static_cast<Nanos>(random() % static_cast<std::uint64_t>(undisturbed));
    pack_and_kill("new", "out", options, after);
    options.existing = Existing::kRefuse;
    // Before the new pack had begun, the old one is still there, and says so.
    if (!refusal({"new"}, "out", options).empty()) {
      ASSERT_EQ(code_, Code::kExists);
      options.existing = Existing::kOverwrite;
      pack_all({"new"}, "out", options);
    }
    ASSERT_EQ(files("out"), whole);
  }
}

}  // namespace
}  // namespace bedplate::data
