// bedplate cache verify: every block of a cache read and checked.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "cli/cache_options.h"
#include "cli/command.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

struct Options {
  std::string folder;
  bool repair = false;
  bool json = false;
};

std::string as_json(const store::CacheCheck& check) {
  nlohmann::ordered_json out = {
      {"blocks", check.blocks}, {"bytes", check.bytes}, {"stopped", check.stopped}};
  out["bad"] = nlohmann::ordered_json::array();
  for (const auto& bad : check.bad) {
    out["bad"].push_back({{"origin", bad.origin},
                          {"block", bad.block},
                          {"slot", bad.slot},
                          {"bytes", bad.bytes},
                          {"what", to_utf8(bad.what)}});
  }
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string as_text(const store::CacheCheck& check, const Options& options) {
  std::string text;
  for (const auto& bad : check.bad) {
    text += fmt::format("slot {}, block {} of an object in {}: {}\n", bad.slot, bad.block,
                        bad.origin.empty() ? "an origin that is not known by name" : bad.origin,
                        to_utf8(bad.what));
  }
  text +=
      fmt::format("{} blocks, {}: ", check.blocks, human_bytes(static_cast<double>(check.bytes)));
  if (check.stopped) return text + "then stopped\n";
  if (check.bad.empty()) return text + "all are well\n";
  return text + fmt::format("{} bad, {}\n", check.bad.size(),
                            options.repair ? "dropped" : "which --repair drops");
}

int verify(const Options& options) {
  Attended attended;
  return attended.run([&] {
    const auto check = store::verify_cache(
        cache_folder(options.folder), options.repair ? store::Repair::kYes : store::Repair::kNo,
        cache_watch(attended, "checking", "blocks"));
    attended.hide_line();
    print(options.json ? as_json(check) : as_text(check, options));
    return check.bad.empty() ? kExitFine : kExitFindings;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_cache_folder(app, options->folder);
  app.add_flag("--repair", options->repair,
               "drop what is bad; it is fetched again when it is read");
  app.add_flag("--json", options->json, "what was found, as JSON");
  return [options] { return verify(*options); };
}

}  // namespace

extern const Command kCacheVerify = {
    .name = "cache verify",
    .summary = "read every block of a cache and check it; exit with 1 when one is bad",
    .examples =
        "bedplate cache verify /nvme/cache\n"
        "bedplate cache verify /nvme/cache --repair",
    .declare = declare,
};

}  // namespace bedplate::cli
