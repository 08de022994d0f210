#include "probe/internal/sqlite.h"

#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::probe {
namespace {

bool out_of_space(int error_number) {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

// A rollback between the failed write and our look at it may have overwritten errno: then the file
// system is asked.
bool has_no_room(const std::string& path) {
  struct statvfs disk;
  if (::statvfs(path.c_str(), &disk) == 0 && disk.f_bavail == 0) return true;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  constexpr rlim_t kWrite = 8192;  // a page and its frame's header end beyond the limit
  for (const char* const suffix : {"", "-wal"}) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path + suffix, error);
    if (!error && size + kWrite >= limit.rlim_cur) return true;
  }
  return false;
}

Code code_of(int result, int error_number) {
  switch (result & 0xFF) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return Code::kNoSpace;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
    case SQLITE_SCHEMA:
    case SQLITE_ERROR:
      return Code::kCorrupt;  // our statements are right: a missing table is the file's fault
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
      return Code::kPermission;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return Code::kUnavailable;
    case SQLITE_CANTOPEN:
      if (error_number == ENOENT || error_number == ENOTDIR) return Code::kNotFound;
      if (error_number == EACCES || error_number == EPERM || error_number == EROFS)
        return Code::kPermission;
      return out_of_space(error_number) ? Code::kNoSpace : Code::kIo;
    case SQLITE_IOERR:
      // The shared index is grown by plain writes, whose errno SQLite does not keep.
      if (result == SQLITE_IOERR_SHMSIZE || out_of_space(error_number)) return Code::kNoSpace;
      return result == SQLITE_IOERR_SHORT_READ ? Code::kCorrupt : Code::kIo;
    default:
      return Code::kIo;
  }
}

int flags_of(Database::Access access) {
  const int common =
      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_URI | SQLITE_OPEN_EXRESCODE;
  if (access == Database::Access::kCreate)
    return common | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  return common | SQLITE_OPEN_READONLY;
}

// SQLite's own URI form, the only way to ask for `immutable`; every byte with a meaning in it is
// escaped.
std::string uri_of(const std::string& path, Database::Access access) {
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7F || c == '%' || c == '?' || c == '#') {
      uri += fmt::format("%{:02X}", byte);
    } else {
      uri += c;
    }
  }
  if (access == Database::Access::kReadImmutable) uri += "?immutable=1";
  return uri;
}

}  // namespace

std::string damaged_text(std::string_view path, std::string_view what) {
  return fmt::format(
      "{}: damaged: {}; what can be saved of it: `sqlite3 {} .recover`, otherwise record the run "
      "again",
      path, what, shell_quote(path));
}

Database::Database(const std::string& path, Access access) : path_(path) {
  // "file://host/…" would be read as an authority, so relative and doubled slashes are made plain
  // first.
  std::string plain = path;
  while (plain.starts_with("//")) plain.erase(0, 1);
  const int result =
      sqlite3_open_v2(uri_of(plain, access).c_str(), &handle_, flags_of(access), nullptr);
  if (result != SQLITE_OK) {
    const int error_number = handle_ != nullptr ? sqlite3_system_errno(handle_) : ENOMEM;
    sqlite3_close(handle_);
    const Code code = code_of(result, error_number);
    throw Error(code, "{}: cannot open: {}", path_,
                error_number != 0 ? std::string(errno_error(error_number, "the system says").what())
                                  : std::string(sqlite3_errstr(result)));
  }
  sqlite3_extended_result_codes(handle_, 1);
  sqlite3_busy_timeout(handle_, 1000);  // somebody else looks into the file with other tools
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, 64 << 20);
  // A file from elsewhere may hold any schema: no function of it is ever called with side effects.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
}

Database::~Database() { sqlite3_close_v2(handle_); }

void Database::close() {
  const int result = sqlite3_close(handle_);
  if (result != SQLITE_OK) fail(result, "closing");
  handle_ = nullptr;
}

void Database::exec(const char* sql) {
  const int result = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) fail(result, sql);
}

std::int64_t Database::pragma(const char* sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.number(0) : 0;
}

std::int64_t Database::changes() const { return sqlite3_changes(handle_); }

bool Database::in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

void Database::fail(int result, std::string_view doing) const {
  const int error_number = sqlite3_system_errno(handle_);
  Code code = code_of(result, error_number);
  if (result == SQLITE_IOERR_WRITE && has_no_room(path_)) code = Code::kNoSpace;
  if (code == Code::kNoSpace) {
    throw Error(code, "{}: no space left (disk, quota or file size limit): {}", path_,
                sqlite3_errmsg(handle_));
  }
  if (code == Code::kIo && error_number != 0) {
    throw Error(code, "{}: {} ({})", path_, sqlite3_errmsg(handle_),
                errno_error(error_number, "the system says").what());
  }
  if (code == Code::kCorrupt) throw Error(code, "{}", damaged_text(path_, sqlite3_errmsg(handle_)));
  throw Error(code, "{}: {} (while: {})", path_, sqlite3_errmsg(handle_), doing.substr(0, 80));
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  const int result = sqlite3_prepare_v3(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &handle_, nullptr);
  if (result != SQLITE_OK) database_.fail(result, sql);
}

Statement::~Statement() { sqlite3_finalize(handle_); }

Statement& Statement::bind(int index, std::int64_t value) {
  sqlite3_bind_int64(handle_, index, value);
  return *this;
}

Statement& Statement::bind_text(int index, std::string_view value) {
  sqlite3_bind_text64(handle_, index, value.data() != nullptr ? value.data() : "", value.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view value) {
  sqlite3_bind_blob64(handle_, index, value.data() != nullptr ? value.data() : "", value.size(),
                      SQLITE_STATIC);
  return *this;
}

Statement& Statement::bind_null(int index) {
  sqlite3_bind_null(handle_, index);
  return *this;
}

bool Statement::step() {
  const int result = sqlite3_step(handle_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  const char* sql = sqlite3_sql(handle_);
  database_.fail(result, sql != nullptr ? sql : "reading");
}

void Statement::run() {
  step();
  reset();
}

void Statement::reset() { sqlite3_reset(handle_); }

std::int64_t Statement::number(int column) const { return sqlite3_column_int64(handle_, column); }

bool Statement::is_null(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

std::string_view Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(handle_, column);
  const int size = sqlite3_column_bytes(handle_, column);
  return data != nullptr
             ? std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(size))
             : std::string_view();
}

}  // namespace bedplate::probe
