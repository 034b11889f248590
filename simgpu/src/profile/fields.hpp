#pragma once

#include <concepts>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

/// @file
/// What a record of the profile says, as JSON.

namespace simgpu::profile {

/// Members of a JSON object, one after the other: `"m":4,"name":"x"`.
class Fields {
 public:
  Fields& add(std::string_view name, std::string_view value) { return raw(name, in_quotes(value)); }
  Fields& add(std::string_view name, const char* value) {
    return add(name, std::string_view(value));
  }
  Fields& add(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  Fields& add(std::string_view name, double value);
  Fields& add(std::string_view name, std::integral auto value) {
    return raw(name, std::to_string(value));
  }
  /// `"grid":[1,2,3]`
  Fields& add(std::string_view name, std::initializer_list<unsigned> values);
  /// A value that is JSON.
  Fields& raw(std::string_view name, std::string_view json);
  Fields& append(const Fields& others);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  static std::string in_quotes(std::string_view value);

  std::string text_;
};

}  // namespace simgpu::profile
