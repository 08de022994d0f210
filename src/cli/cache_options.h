// What the commands of `bedplate cache` have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/data_options.h"
#include "store/cache/cache_admin.h"

namespace bedplate::cli {

void add_cache_folder(CLI::App& app, std::string& folder);
// Of "DIR" or "DIR:200GB". Error{kInvalid} when it names none.
std::filesystem::path cache_folder(const std::string& text);

// What the URLs name: without braces, and paths without patterns.
std::vector<std::string> expanded(const std::vector<std::string>& urls);

// The progress line and Ctrl-C of `attended`, which it borrows; `phase` and `unit` are literals.
store::CacheWatch cache_watch(const Attended& attended, std::string_view phase,
                              std::string_view unit);

}  // namespace bedplate::cli
