#include "profile/fields.hpp"

#include <cstdio>

namespace simgpu::profile {

Fields& Fields::raw(std::string_view name, std::string_view json) {
  if (!text_.empty()) text_ += ',';
  text_ += in_quotes(name);
  text_ += ':';
  text_ += json;
  return *this;
}

Fields& Fields::add(std::string_view name, double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return raw(name, text);
}

Fields& Fields::add(std::string_view name, std::initializer_list<unsigned> values) {
  std::string list;
  for (const unsigned value : values) list += (list.empty() ? "" : ",") + std::to_string(value);
  return raw(name, '[' + list + ']');
}

Fields& Fields::append(const Fields& others) {
  if (!text_.empty() && !others.empty()) text_ += ',';
  text_ += others.text_;
  return *this;
}

std::string Fields::in_quotes(std::string_view value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      quoted += c;
    } else {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      quoted += code;
    }
  }
  return quoted + '"';
}

}  // namespace simgpu::profile
