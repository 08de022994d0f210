// A store that is read through a cache's tiers.
#pragma once

#include <functional>
#include <memory>

#include "store/cache/internal/tiers.h"
#include "store/store.h"

namespace bedplate::store::cache {

// `tiers`: this process's own; called by each read.
std::shared_ptr<Store> cached_store(std::shared_ptr<Store> origin, std::function<Tiers&()> tiers);

// As blocks are named after: by `key`, the secret of the file that they lie in.
std::uint64_t origin_hash(const Hash128& key, std::string_view url);
std::uint64_t object_hash(const Hash128& key, std::string_view url, std::string_view object_key);

}  // namespace bedplate::store::cache
