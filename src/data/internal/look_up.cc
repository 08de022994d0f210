#include "data/internal/look_up.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "data/parallel.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kListFrom = 32;  // keys

using Infos = std::vector<std::optional<store::ObjectInfo>>;

std::string_view common_prefix(std::span<const std::string> keys) {
  std::string_view prefix = keys.front();
  for (const std::string_view key : keys) {
    const auto end = std::ranges::mismatch(prefix, key).in1;
    prefix = prefix.substr(0, static_cast<std::size_t>(end - prefix.begin()));
  }
  return prefix;
}

// Fills in what a listing brings, which may be less than there is.
void look_up_by_listing(store::Store& store, std::span<const std::string> keys, Infos& infos,
                        Deadline deadline) {
  std::unordered_map<std::string_view, std::size_t> wanted;
  for (std::size_t i = 0; i < keys.size(); ++i) wanted.emplace(keys[i], i);
  // A folder that holds far more than what is wanted is not listed to its end.
  struct Enough {};
  std::size_t others = 0;
  const auto visit = [&](const store::ObjectInfo& info) {
    if (const auto at = wanted.find(info.key); at != wanted.end()) {
      infos[at->second] = info;
    } else if (++others > 10 * keys.size() + 1000) {
      throw Enough();
    }
  };
  try {
    store.list(common_prefix(keys), visit, deadline);
  } catch (const Enough&) {
  } catch (const Error& error) {
    // Who may read may not always list.
    if (error.code() != Code::kUnsupported && error.code() != Code::kPermission) throw;
  }
}

}  // namespace

Infos look_up(store::Store& store, std::span<const std::string> keys, int threads,
              Deadline deadline) {
  Infos infos(keys.size());
  if (keys.size() >= kListFrom) look_up_by_listing(store, keys, infos, deadline);
  for_each_of(keys.size(), threads, [&](std::size_t i) {
    if (!infos[i]) infos[i] = store.find(keys[i], deadline);
  });
  return infos;
}

}  // namespace bedplate::data
