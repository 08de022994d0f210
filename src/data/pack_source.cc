#include "data/pack_source.h"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/braces.h"
#include "data/listing.h"
#include "data/manifest.h"
#include "data/pack_record.h"
#include "data/permutation.h"
#include "data/tar_index.h"

namespace bedplate::data {
namespace {

struct Kind {
  std::string_view name;
  std::array<std::string_view, 4> suffixes;  // of its files; empty: any
};
constexpr std::array<Kind, 7> kKinds = {{{"shards", {}},
                                         {"jsonl", {".jsonl", ".ndjson", ".json"}},
                                         {"text", {".txt", ".text", ".md"}},
                                         {"npy", {".npy"}},
                                         {"tokens", {".bin", ".tokens", ".tok", ".npy"}},
                                         {kParquet, {".parquet", ".pq"}},
                                         {"files", {}}}};

bool has_suffix(std::string_view name, const Kind& kind) {
  return std::ranges::any_of(kind.suffixes, [&](std::string_view suffix) {
    return !suffix.empty() && name.ends_with(suffix);
  });
}

const Kind& kind_of_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  throw Error(Code::kInvalid, "nothing can be packed from '{}'{}; there are {}", to_utf8(name),
              nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
              fmt::join(names, ", "));
}

// What lies beside shards and may be made anew at any time.
bool is_sidecar(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  return name.ends_with(kTarSidecarSuffix) || last == kPackRecordName || last == kManifestName;
}

// Files of a format whose shards are known by another one: MDS by index.json, Megatron by .idx.
bool belongs_to_shard(std::string_view name) {
  return name.find(".mds") != std::string_view::npos || name.ends_with(".bin");
}

// ".DS_Store", ".git/config".
bool is_hidden(std::string_view name) {
  return name.starts_with('.') || name.find("/.") != std::string_view::npos;
}

// What systems leave in folders that people look into.
bool is_clutter(const std::string& name) {
  const char* const last = name.c_str() + name.rfind('/') + 1;
  return ::strcasecmp(last, "thumbs.db") == 0 || ::strcasecmp(last, "ehthumbs.db") == 0 ||
         ::strcasecmp(last, "desktop.ini") == 0 || name.starts_with("__MACOSX/") ||
         name.find("/__MACOSX/") != std::string::npos;
}

// Shell patterns of what is left out.
class Excluded {
 public:
  explicit Excluded(std::span<const std::string> patterns) {
    for (const std::string& pattern : patterns) patterns_.push_back({pattern, 0});
  }

  // `name`: below the folder that was given.
  bool has(const std::string& name) {
    const char* const last = name.c_str() + name.rfind('/') + 1;
    bool any = false;
    for (auto& [pattern, hits] : patterns_) {
      const bool hit = pattern.ends_with('/')
                           ? ::fnmatch((pattern + "*").c_str(), name.c_str(), 0) == 0 ||
                                 ::fnmatch(("*/" + pattern + "*").c_str(), name.c_str(), 0) == 0
                           : ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 ||
                                 ::fnmatch(pattern.c_str(), last, 0) == 0;
      hits += hit ? 1 : 0;
      any |= hit;
    }
    return any;
  }

  void tell(std::vector<std::string>& notes) const {
    for (const auto& [pattern, hits] : patterns_)
      notes.push_back(fmt::format("--exclude {} leaves out {} files", to_utf8(pattern), hits));
  }

 private:
  std::vector<std::pair<std::string, std::int64_t>> patterns_;
};

struct Compression {
  std::string_view suffix;
  std::string_view name;
  std::string_view unpack;  // a command
};
constexpr std::array<Compression, 9> kCompressions = {{{".gz", "gzip", "gunzip -k"},
                                                       {".tgz", "gzip", "gunzip -k"},
                                                       {".zst", "zstd", "zstd -d"},
                                                       {".xz", "xz", "xz -dk"},
                                                       {".bz2", "bzip2", "bunzip2 -k"},
                                                       {".lz4", "lz4", "lz4 -d"},
                                                       {".zip", "zip", "unzip"},
                                                       {".7z", "7-Zip", "7z x"},
                                                       {".rar", "RAR", "unrar x"}}};

const Compression* compression_of(std::string_view name) {
  for (const Compression& one : kCompressions) {
    if (name.ends_with(one.suffix)) return &one;
  }
  return nullptr;
}

// "corpus.jsonl.gz": what would be no loose file without its compression.
bool is_compressed_source(std::string_view name) {
  const Compression* how = compression_of(name);
  if (how == nullptr) return false;
  if (how->suffix == ".tgz") return true;
  name.remove_suffix(how->suffix.size());
  if (format_of_shard(name) != nullptr) return true;
  return std::ranges::any_of(kKinds, [&](const Kind& kind) { return has_suffix(name, kind); });
}

// What writers of Parquet leave beside its files: "_SUCCESS", "_delta_log/…".
bool is_underlined(std::string_view name) {
  return name.starts_with('_') || name.find("/_") != std::string_view::npos;
}

class Listing {
 public:
  Listing(const PackSourceOptions& options, const Watch& watch)
      : options_(options),
        progress_(watch, "looking at the source", "files"),
        excluded_(options.exclude) {}

  void add(const std::string& pattern) {
    for (const std::string& url : expand_names(pattern)) add_url(url);
  }

  SourceListing take() {
    if (out_.objects.empty()) throw nothing_there();
    const Kind& kind = options_.kind.empty() ? told_kind() : kind_of_name(options_.kind);
    out_.kind = kind.name;
    choose(kind);
    if (out_.objects.empty()) throw nothing_there();
    out_.fingerprint = key_of({out_.objects.size()});
    for (const SourceObject& one : out_.objects) {
      out_.bytes += one.object.size;
      out_.fingerprint =
          key_of({out_.fingerprint, hash_of(one.name), static_cast<std::uint64_t>(one.object.size),
                  hash_of(one.object.version)});
    }
    return std::move(out_);
  }

 private:
  void add_url(const std::string& url) {
    auto place = store::locate(url, options_.store);
    auto [at, fresh] = stores_.try_emplace(place.store->url(), place.store);
    if (fresh && options_.wrap) at->second = options_.wrap(place.store);
    place.store = at->second;
    urls_.push_back(to_utf8(url));
    const Deadline deadline = Deadline::after(options_.timeout);
    const bool folder = place.key.empty() || place.key.ends_with('/');
    if (!folder) {
      if (auto info = place.store->find(place.key, deadline)) {
        std::string name = place.key.substr(place.key.rfind('/') + 1);
        if (excluded_.has(name)) {
          ++excluded_files_;
          return;
        }
        out_.objects.push_back({place.store, *info, std::move(name)});
        out_.shard_urls.push_back(escape_braces(url));  // those left are of names
        return;
      }
    }
    const std::string prefix = folder ? place.key : place.key + "/";
    const std::size_t before = out_.objects.size();
    place.store->list(
        prefix,
        [&](const store::ObjectInfo& info) {
          progress_.add(1, info.size);
          std::string name = info.key.substr(prefix.size());
          const std::string_view last = std::string_view(name).substr(name.rfind('/') + 1);
          if (is_hidden(name)) {
            ++hidden_;
          } else if (is_clutter(name)) {
            ++clutter_;
          } else if (excluded_.has(name)) {
            ++excluded_files_;
          } else if (last != kListingName && last != kManifestName) {
            out_.objects.push_back({place.store, info, std::move(name)});
          }
        },
        deadline);
    if (out_.objects.size() == before && hidden_ + clutter_ + excluded_files_ == 0) {
      throw Error(Code::kNotFound, "{} is not there, or an empty folder: nothing to pack",
                  to_utf8(url));
    }
    out_.folders.push_back(fmt::format("{}/{}", place.store->url(), prefix));
    out_.shard_urls.push_back(escape_braces(url.ends_with('/') ? url : url + "/"));
  }

  Error nothing_there() const {
    std::string why;
    if (hidden_ > 0) why += fmt::format("; {} hidden files are passed over", hidden_);
    if (clutter_ > 0) why += fmt::format("; {} files are passed over ({})", clutter_, kClutter);
    if (excluded_files_ > 0) why += fmt::format("; {} files are excluded", excluded_files_);
    for (const Kind& kind : kKinds) {
      if (kind.name == out_.kind && !kind.suffixes.front().empty())
        why += fmt::format("; of a folder, files that end in {} are taken",
                           fmt::join(kind.suffixes, ", "));
    }
    return {Code::kNotFound, "nothing to pack{} in {}{}",
            out_.kind.empty() ? "" : " as " + out_.kind, fmt::join(urls_, ", "), why};
  }

  const Kind& told_kind() const {
    if (options_.tokens || options_.length > 0) return kind_of_name("tokens");
    if (options_.unit == PackSourceOptions::Unit::kLine) return kind_of_name("text");
    const auto all = [&](auto is) { return std::ranges::all_of(out_.objects, is); };
    const auto is_shard = [](const SourceObject& one) {
      return format_of_shard(one.name) != nullptr;
    };
    if (std::ranges::any_of(out_.objects, is_shard)) {
      if (all([&](const SourceObject& one) {
            return is_shard(one) || is_sidecar(one.name) || belongs_to_shard(one.name);
          }))
        return kind_of_name("shards");
      throw Error(Code::kInvalid,
                  "{} hold shards beside other files: say which with --from shards or --from files",
                  fmt::join(urls_, ", "));
    }
    for (const std::string_view name : {"jsonl", "npy"}) {
      const Kind& kind = kind_of_name(name);
      // A folder of .json files is one of loose files; only lines are certain.
      if (all([&](const SourceObject& one) {
            return has_suffix(one.name, kind) && !one.name.ends_with(".json");
          }))
        return kind;
    }
    const Kind& parquet = kind_of_name(kParquet);
    const auto is_parquet = [&](const SourceObject& one) { return has_suffix(one.name, parquet); };
    if (std::ranges::any_of(out_.objects, is_parquet)) {
      if (all([&](const SourceObject& one) { return is_parquet(one) || is_underlined(one.name); }))
        return parquet;
      throw Error(Code::kInvalid,
                  "{} hold Parquet beside other files: say which with --from parquet or --from "
                  "files",
                  fmt::join(urls_, ", "));
    }
    const bool lone = out_.folders.empty();
    refuse_compressed(", or give --from files, which packs files as they are");
    if (lone && all([](const SourceObject& one) { return one.name.ends_with(".json"); })) {
      throw Error(Code::kInvalid,
                  "{}: a .json does not say whether it holds one value or one a line; give --from "
                  "jsonl (each line is a sample) or --from files (each file is one)",
                  fmt::join(urls_, ", "));
    }
    if (lone && all([](const SourceObject& one) { return one.name.ends_with(".txt"); }))
      return kind_of_name("text");
    if (lone && all([](const SourceObject& one) { return one.name.ends_with(".bin"); })) {
      throw Error(Code::kInvalid,
                  "{}: a .bin does not say what it holds; give --tokens DTYPE --length N, or "
                  "--from files",
                  fmt::join(urls_, ", "));
    }
    return kind_of_name("files");
  }

  // They would be lost, or one sample each.
  void refuse_compressed(std::string_view otherwise) const {
    for (const SourceObject& one : out_.objects) {
      const Compression* how = compression_of(one.name);
      if (how == nullptr || !(out_.folders.empty() || is_compressed_source(one.name))) continue;
      throw Error(Code::kInvalid,
                  "{} is compressed ({}), which is not read: unpack it first ({} {}){}",
                  to_utf8(one.name), how->name, how->unpack, to_utf8(one.name), otherwise);
    }
  }

  // Of a folder, the files that can be of this kind; what was named itself is taken as it is.
  void choose(const Kind& kind) {
    std::int64_t others = 0;
    if (kind.name != "files") refuse_compressed("");
    if (kind.name == "shards") {
      std::erase_if(out_.objects, [](const SourceObject& one) { return is_sidecar(one.name); });
    } else if (!out_.folders.empty() && !kind.suffixes.front().empty()) {
      others = static_cast<std::int64_t>(std::erase_if(out_.objects, [&](const SourceObject& one) {
        return !has_suffix(one.name, kind) || (kind.name == kParquet && is_underlined(one.name));
      }));
    }
    if (hidden_ > 0) out_.notes.push_back(fmt::format("{} hidden files are passed over", hidden_));
    if (clutter_ > 0)
      out_.notes.push_back(fmt::format("{} files are passed over ({})", clutter_, kClutter));
    excluded_.tell(out_.notes);
    if (others > 0) {
      out_.notes.push_back(
          fmt::format("{} files are passed over: they are not of kind {}", others, kind.name));
    }
  }

  const PackSourceOptions& options_;
  Progress progress_;
  std::map<std::string, std::shared_ptr<store::Store>> stores_;
  std::vector<std::string> urls_;
  static constexpr std::string_view kClutter = "Thumbs.db, desktop.ini, __MACOSX";
  Excluded excluded_;
  std::int64_t hidden_ = 0;
  std::int64_t clutter_ = 0;
  std::int64_t excluded_files_ = 0;
  SourceListing out_;
};

Error bad_schema(std::string_view text, std::string_view why) {
  return {Code::kInvalid, "'{}' is no schema: {}; it is written name:dtype[shape],…, as in {}",
          to_utf8(text), why, "tokens:u16[2048],text:utf8"};
}

// "u16[2048,3]" → dtype and shape.
Column parse_column(std::string_view whole, std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) throw bad_schema(whole, "a column has no dtype");
  Column column{.name = std::string(trim(text.substr(0, colon)))};
  std::string_view type = trim(text.substr(colon + 1));
  if (const std::size_t open = type.find('['); open != std::string_view::npos) {
    if (!type.ends_with(']')) throw bad_schema(whole, "a [ has no ]");
    for (const std::string_view one : split(type.substr(open + 1, type.size() - open - 2), ',')) {
      const auto number = to_int(trim(one));
      if (!number) throw bad_schema(whole, fmt::format("'{}' is no number", to_utf8(one)));
      column.shape.push_back(*number);
    }
    type = trim(type.substr(0, open));
  }
  try {
    column.dtype = parse_dtype(type);
  } catch (const Error& error) {
    throw bad_schema(whole, error.what());
  }
  return column;
}

}  // namespace

SourceListing list_source(std::span<const std::string> urls, const PackSourceOptions& options,
                          const Watch& watch) {
  if (urls.empty()) throw Error(Code::kInvalid, "nothing was named that is to be packed");
  if (!options.kind.empty()) kind_of_name(options.kind);
  if ((options.kind == "tokens" || options.tokens) && options.length <= 0) {
    throw Error(Code::kInvalid,
                "files of tokens need --tokens DTYPE (what they hold: u16, u32, …; a .npy says it "
                "itself) and --length N (tokens of one sample)");
  }
  Listing listing(options, watch);
  for (const std::string& url : urls) listing.add(url);
  return listing.take();
}

std::unique_ptr<PackSource> open_source(const SourceListing& listing, Target target,
                                        const PackSourceOptions& options, const Watch& watch) {
  if (listing.kind == kParquet)
    throw Error(Code::kUnsupported, "Parquet is read by Python: python3 -m bedplate.data.parquet");
  if (options.schema && listing.kind != "jsonl" && listing.kind != "shards")
    throw Error(Code::kInvalid, "a schema is for JSON lines and for shards, not for {}",
                listing.kind);
  if (options.schema && target == Target::kWebDataset)
    throw Error(Code::kInvalid, "a schema is for packed shards: a tar's members have no types");
  if (listing.kind != "tokens" && (options.tokens || options.length > 0))
    throw Error(Code::kInvalid, "--tokens and --length are for files of tokens, not for {}",
                listing.kind);
  const bool files = listing.kind == "files" ||
                     (listing.kind == "text" && options.unit == PackSourceOptions::Unit::kFile);
  if (options.labels == PackSourceOptions::Labels::kFolder && !files)
    throw Error(Code::kInvalid, "--labels folder is for loose files, not for {}", listing.kind);
  if (!options.fill.empty() && (listing.kind != "jsonl" || target == Target::kWebDataset))
    throw Error(Code::kInvalid, "--fill is for JSON lines that become packed shards{}",
                listing.kind == "jsonl" ? ": a tar takes lines as they are" : "");
  if (listing.kind == "shards") return open_shards_source(listing, target, options);
  if (listing.kind == "npy" || listing.kind == "tokens")
    return open_arrays_source(listing, options);
  const bool lines = listing.kind == "jsonl" ||
                     (listing.kind == "text" && options.unit != PackSourceOptions::Unit::kFile);
  if (lines) return open_lines_source(listing, target, options, watch);
  return open_files_source(listing, target, options);
}

std::optional<Column> key_column(PackSourceOptions::Keys keys) {
  if (keys == PackSourceOptions::Keys::kNone) return std::nullopt;
  return Column{.name = std::string(kKeyColumn),
                .dtype = keys == PackSourceOptions::Keys::kText ? Dtype::kUtf8 : Dtype::kBytes};
}

Schema parse_schema(std::string_view text) {
  text = trim(text);
  if (text.starts_with('{')) {
    try {
      return Schema::from_json(text);
    } catch (const Error& error) {
      throw Error(Code::kInvalid, "{}", error.what());
    }
  }
  std::vector<Column> columns;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    columns.push_back(parse_column(text, text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return Schema(std::move(columns));
}

}  // namespace bedplate::data
