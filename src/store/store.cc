#include "store/store.h"

#include "base/text.h"

namespace bedplate::store {

ObjectInfo info(Store& store, std::string_view key, Deadline deadline) {
  auto found = store.find(key, deadline);
  if (!found) throw Error(Code::kNotFound, "{} has no object {}", store.url(), to_utf8(key));
  return *std::move(found);
}

void read_exactly(Store& store, Read read, Deadline deadline) {
  store.read({&read, 1}, deadline);
  if (read.error) throw *read.error;
}

std::string get(Store& store, std::string_view key, std::int64_t most, Deadline deadline) {
  const ObjectInfo found = info(store, key, deadline);
  if (found.size > most) {
    throw Error(Code::kInvalid, "{} in {} has {}, more than the {} that are read at once",
                to_utf8(key), store.url(), human_bytes(static_cast<double>(found.size)),
                human_bytes(static_cast<double>(most)));
  }
  std::string bytes(static_cast<std::size_t>(found.size), '\0');
  read_exactly(store,
               {.key = found.key,
                .into = std::as_writable_bytes(std::span(bytes)),
                .version = found.version},
               deadline);
  return bytes;
}

ObjectInfo put(Store& store, std::string_view key, std::string_view bytes, IfExists if_exists,
               Nanos timeout) {
  const auto writer = store.create(key, if_exists, timeout);
  writer->write(std::as_bytes(std::span(bytes)));
  return writer->commit();
}

void check_key(std::string_view key) {
  const auto refuse = [&](std::string_view why) {
    throw Error(Code::kInvalid, "'{}' is no key of an object: {}", to_utf8(key), why);
  };
  if (key.empty()) refuse("it is empty");
  if (key.find('\0') != std::string_view::npos) refuse("it holds a zero byte");
  for (const std::string_view part : split(key, '/')) {
    if (part.empty()) refuse("it has an empty part between slashes");
    if (part == "." || part == "..") refuse("it has a part . or ..");
  }
}

void check_read(const Read& read, std::int64_t size, std::string_view version, const Store& store) {
  if (!read.version.empty() && read.version != version) {
    throw Error(Code::kCorrupt, "{} in {} was replaced or changed since it was looked at",
                to_utf8(read.key), store.url());
  }
  const std::int64_t wanted = std::ssize(read.into);
  if (read.offset < 0 || read.offset > size || wanted > size - read.offset) {
    throw Error(Code::kInvalid, "{} bytes from byte {} of {} in {} are not there: it has {}",
                wanted, read.offset, to_utf8(read.key), store.url(), size);
  }
}

void begin_reads(std::span<Read> reads, const std::function<void(Read&)>& begin) {
  for (Read& one : reads) {
    one.error.reset();
    try {
      begin(one);
    } catch (const Error& error) {
      one.error = error;
    }
  }
}

}  // namespace bedplate::store
