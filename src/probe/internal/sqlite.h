// SQLite as the run file needs it: a connection and prepared statements whose failures are Errors
// with the right code.
//
// Not thread-safe: a Database and its statements belong to one thread at a time. Throws
// Error{kNoSpace | kIo | kPermission | kNotFound | kCorrupt | kUnavailable}; the message starts
// with the file's path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace bedplate::probe {

// What to say of a database that cannot be read, and what to do.
std::string damaged_text(std::string_view path, std::string_view what);

class Database {
 public:
  enum class Access { kCreate, kRead, kReadImmutable };

  Database(const std::string& path, Access access);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  void exec(const char* sql);
  std::int64_t pragma(const char* sql);  // its first column as a number; 0 when it gives no row
  std::int64_t changes() const;          // rows that the last INSERT, UPDATE or DELETE touched
  bool in_transaction() const;
  void close();  // the destructor's work, but failures are thrown

  [[noreturn]] void fail(int result, std::string_view doing) const;
  sqlite3* handle() const { return handle_; }

 private:
  std::string path_;
  sqlite3* handle_ = nullptr;
};

class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  // Texts and blobs are borrowed until the statement is stepped to its end or reset.
  Statement& bind(int index, std::int64_t value);
  Statement& bind_text(int index, std::string_view value);
  Statement& bind_blob(int index, std::string_view value);
  Statement& bind_null(int index);

  bool step();  // true: there is a row
  void run();   // steps a statement without rows to its end, ready for the next use
  void reset();

  std::int64_t number(int column) const;
  bool is_null(int column) const;
  std::string_view bytes(int column) const;  // text or blob, valid until the next step()

 private:
  Database& database_;
  sqlite3_stmt* handle_ = nullptr;
};

}  // namespace bedplate::probe
