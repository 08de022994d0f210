#include "cli/config.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"
#include "doctor/rule.h"
#include "os/test_folder.h"

namespace bedplate::cli {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    parse_config(text, "my.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "";
}

TEST(Config, ReadsThresholdsHoweverTheyAreWritten) {
  for (const auto text : {"[thresholds]\ncpu_quota.throttled_share = 0.25\n",
                          "[thresholds]\n\"cpu_quota.throttled_share\" = 0.25\n",
                          "[thresholds.cpu_quota]\nthrottled_share = 0.25\n",
                          "thresholds.cpu_quota.throttled_share = 0.25\n"}) {
    const Config config = parse_config(text, "my.toml");
    ASSERT_EQ(config.thresholds.size(), 1U) << text;
    EXPECT_EQ(config.thresholds.at("cpu_quota.throttled_share"), 0.25);
  }
  EXPECT_TRUE(parse_config("", "my.toml").thresholds.empty());
  EXPECT_EQ(parse_config("[thresholds]\ncpu_quota.throttled_share = 1\n", "my.toml")
                .thresholds.at("cpu_quota.throttled_share"),
            1);
}

TEST(Config, UnknownKeysAreErrorsThatNameTheNearestAndTheLine) {
  EXPECT_THAT(refusal("\n[thresholds]\ncpu_quota.throtled_share = 0.2\n"), HasSubstr("my.toml:3"));
  EXPECT_THAT(refusal("[thresholds]\ncpu_quota.throtled_share = 0.2\n"),
              HasSubstr("did you mean cpu_quota.throttled_share?"));
  EXPECT_THAT(refusal("[treshold]\n"), HasSubstr("did you mean thresholds?"));
  EXPECT_THAT(refusal("thresholds = 3\n"), HasSubstr("write [thresholds]"));
  EXPECT_THAT(refusal("[thresholds]\ncpu_quota.throttled_share = 'much'\n"),
              HasSubstr("must be a number"));
  EXPECT_THAT(refusal("[thresholds]\ncpu_quota.throttled_share = -1\n"), HasSubstr("at least 0"));
  EXPECT_THAT(refusal("[thresholds\n"), HasSubstr("my.toml:1"));
}

TEST(Config, TheOptionGoesBeforeTheEnvironmentAndThatBeforeTheUsualFile) {
  const os::TestFolder folder;
  const auto write = [&](const std::string& name, double value) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name)
        << "[thresholds]\ncpu_quota.throttled_share = " << value << "\n";
    return (folder.path() / name).string();
  };
  const auto value = [](std::string_view given) {
    return load_config(given).thresholds.at("cpu_quota.throttled_share");
  };
  ::unsetenv("BEDPLATE_CONFIG");
  ::unsetenv("XDG_CONFIG_HOME");
  ::setenv("HOME", folder.path().c_str(), 1);
  EXPECT_TRUE(load_config().thresholds.empty());
  EXPECT_EQ(load_config().file, "");
  write(".config/bedplate.toml", 0.1);
  EXPECT_EQ(value(""), 0.1);
  ::setenv("BEDPLATE_CONFIG", write("environment.toml", 0.2).c_str(), 1);
  EXPECT_EQ(value(""), 0.2);
  EXPECT_EQ(value(write("option.toml", 0.3)), 0.3);
  ::setenv("BEDPLATE_CONFIG", "/nowhere/bedplate.toml", 1);
  EXPECT_THROW(load_config(), Error);
  ::unsetenv("BEDPLATE_CONFIG");
  EXPECT_THROW(load_config(folder.path().string()), Error);
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(load_config(pipe.string()), Error);
}

TEST(Config, ExplainsEveryKeyAndShowsAFileThatGivesTheSame) {
  const Config config = parse_config("[thresholds]\ncpu_quota.throttled_share = 0.25\n", "my.toml");
  EXPECT_THAT(explain_key("cpu_quota.throttled_share", config),
              HasSubstr("cpu_quota.throttled_share = 0.25"));
  EXPECT_THAT(explain_key("cpu_quota.throttled_share", config), HasSubstr("set in my.toml"));
  for (const doctor::Rule* rule : doctor::all_rules()) {
    for (const auto& threshold : rule->thresholds)
      EXPECT_THAT(explain_key(threshold.key, {}), HasSubstr(std::string(threshold.unit)));
  }
  EXPECT_THROW(explain_key("cpu_quota.nothing", config), Error);
  const Config again = parse_config(show_config(config), "again.toml");
  EXPECT_EQ(again.thresholds.at("cpu_quota.throttled_share"), 0.25);
  EXPECT_EQ(parse_config(show_config({}), "x").thresholds.size(), again.thresholds.size());
}

}  // namespace
}  // namespace bedplate::cli
