#include <typeinfo>
#include <utility>

#include "core/type_name.hpp"
#include "lockstep/nn/module.hpp"

namespace lockstep::nn {
namespace {

/// 124439808 as "124,439,808".
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

void print(std::ostream& out, const std::string& name, const Module& module, int depth) {
  out << std::string(static_cast<std::size_t>(depth) * 2, ' ');
  if (!name.empty()) out << name << ": ";
  out << type_name(module);
  if (const std::string details = module.describe(); !details.empty()) out << '(' << details << ')';
  if (const auto count = module.parameter_count()) out << "  " << grouped(count) << " parameters";
  out << '\n';
  for (const auto& [child_name, child] : module.children())
    print(out, child_name, *child, depth + 1);
}

}  // namespace

std::string type_name(const Module& module) {
  std::string name = lockstep::detail::full_name_of(typeid(module));
  constexpr std::string_view made = "lockstep::nn::Made<";  // what `make` wraps it in
  if (name.starts_with(made)) name = name.substr(made.size(), name.size() - made.size() - 1);
  return lockstep::detail::short_name_of(std::move(name));
}

std::ostream& operator<<(std::ostream& out, const Module& module) {
  print(out, "", module, 0);
  return out;
}

}  // namespace lockstep::nn
