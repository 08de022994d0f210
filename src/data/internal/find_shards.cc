#include "data/internal/find_shards.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/internal/look_up.h"

namespace bedplate::data {
namespace {

std::string folder_of(std::string_view key) {
  return std::string(key.substr(0, key.rfind('/') + 1));
}

class Finding {
 public:
  explicit Finding(const DatasetOptions& options)
      : options_(options),
        format_(options.format.empty() ? nullptr : &format_of_name(options.format)) {}

  void add(const std::string& pattern) {
    std::vector<Named> named;
    for (std::string& url : expand_names(pattern)) {
      if (url.ends_with('/')) {
        add_named(named);
        named.clear();
        add_folder(url);
      } else {
        auto place = open(url);
        if (place.key.empty()) {  // a folder of this machine, a bucket
          add_named(named);
          named.clear();
          add_folder(url + "/");
          continue;
        }
        named.push_back({std::move(url), std::move(place), {}});
      }
    }
    add_named(named);
  }
  std::vector<FoundShard> take() {
    // A shard that was named and is the only one of its folder is opened as quickly as a manifest.
    std::map<std::pair<store::Store*, std::string>, int> shards_of;
    for (const FoundShard& one : found_) ++shards_of[{one.store.get(), *one.folder}];
    for (const std::size_t i : named_) {
      FoundShard& one = found_[i];
      if (shards_of[{one.store.get(), *one.folder}] == 1) one.folder.reset();
    }
    return std::move(found_);
  }

 private:
  struct Named {
    std::string url;
    store::Place place;
    std::optional<store::ObjectInfo> info;
  };

  Deadline deadline() const { return Deadline::after(options_.shard.timeout); }

  void add_named(std::vector<Named>& named) {
    std::map<store::Store*, std::vector<Named*>> stores;
    for (Named& one : named) stores[one.place.store.get()].push_back(&one);
    for (const auto& [store, of_store] : stores) {
      std::vector<std::string> keys;
      for (const Named* one : of_store) keys.push_back(one->place.key);
      auto infos = look_up(*store, keys, options_.open_at_once, deadline());
      for (std::size_t i = 0; i < keys.size(); ++i) of_store[i]->info = std::move(infos[i]);
    }
    for (auto& [url, place, info] : named) {
      if (!info) {
        throw Error(
            Code::kNotFound, "{} is not there{}", to_utf8(url),
            url.find("://") == std::string::npos ? "" : "; if it is a folder: its name ends in /");
      }
      const Format* format = format_ ? format_ : format_of_shard(place.key);
      if (format == nullptr)
        throw Error(Code::kInvalid,
                    "{}: no format has shards of such a name; name one with format=", to_utf8(url));
      named_.push_back(found_.size());
      found_.push_back({place.store, *info, folder_of(place.key), format});
    }
  }

  void add_folder(const std::string& url) {
    const auto place = open(url);
    if (format_ && !format_->folder_object.empty() && add_as_one(place)) return;
    std::vector<FoundShard> here;
    const auto visit = [&](const store::ObjectInfo& info) {
      const Format* format = format_of_shard(info.key);
      if (format && (!format_ || format == format_))
        here.push_back({place.store, info, place.key, format});
    };
    place.store->list(place.key, visit, deadline());
    drop_what_others_stand_for(here);
    if (here.empty())
      throw Error(Code::kNotFound, "{} holds no shards of {}", to_utf8(url),
                  format_ ? fmt::format("format {}", format_->name)
                          : "a format that is known; loose files are read with format=files");
    for (const FoundShard& one : here) {
      if (one.format == here.front().format) continue;
      throw Error(Code::kInvalid,
                  "{} holds shards of several formats ({} is {}, {} is {}); name one with format=",
                  to_utf8(url), to_utf8(here.front().object.key), here.front().format->name,
                  to_utf8(one.object.key), one.format->name);
    }
    for (FoundShard& one : here) one.of_whole_folder = true;
    std::ranges::move(here, std::back_inserter(found_));
  }

  // Of a format that knows whole folders; false when the folder is none for it.
  bool add_as_one(const store::Place& place) {
    const auto info =
        place.store->find(place.key + std::string(format_->folder_object), deadline());
    if (info) {
      found_.push_back({place.store, *info, place.key, format_});
      return true;
    }
    if (format_->open_folder == nullptr) return false;
    auto opened = format_->open_folder(place.store, place.key, options_.shard);
    found_.push_back({place.store, opened->shard(), place.key, format_, opened});
    return true;
  }

  // Shards below a folder for which an object of the same format stands.
  static void drop_what_others_stand_for(std::vector<FoundShard>& found) {
    std::set<std::pair<const Format*, std::string>> folders;
    for (const FoundShard& one : found) {
      if (!one.format->folder_object.empty())
        folders.emplace(one.format, folder_of(one.object.key));
    }
    if (folders.empty()) return;
    std::erase_if(found, [&](const FoundShard& one) {
      std::string folder = folder_of(one.object.key);
      while (!folder.empty()) {
        folder.pop_back();
        folder = folder_of(folder);
        if (folders.contains({one.format, folder})) return true;
      }
      return false;
    });
  }

  // One store for all URLs that share everything up to the last slash.
  store::Place open(const std::string& url) {
    auto place = store::locate(url, options_.store);
    auto [at, fresh] = stores_.try_emplace(place.store->url(), place.store);
    if (fresh && options_.wrap) at->second = options_.wrap(at->second);
    if (fresh && options_.cache) at->second = options_.cache->over(at->second);
    place.store = at->second;
    return place;
  }

  const DatasetOptions& options_;
  const Format* format_;
  std::map<std::string, std::shared_ptr<store::Store>> stores_;
  std::vector<FoundShard> found_;
  std::vector<std::size_t> named_;  // of them: those that were not found by a folder
};

}  // namespace

std::vector<FoundShard> find_shards(std::span<const std::string> urls,
                                    const DatasetOptions& options) {
  Finding finding(options);
  for (const std::string& url : urls) finding.add(url);
  return finding.take();
}

}  // namespace bedplate::data
