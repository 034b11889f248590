#include "autograd/ops/einsum_equation.hpp"

#include <algorithm>
#include <cctype>
#include <string>

namespace lockstep::autograd {
namespace {

constexpr Label letters = 52;   // A-Z, then a-z: labels sort as the letters do
constexpr Label ellipsis = -1;  // stands for several dimensions, until they are counted

Label label_of(char letter) { return letter <= 'Z' ? letter - 'A' : letter - 'a' + 26; }

/// One side of a comma or arrow, blanks removed.
Labels parse_term(std::string_view equation, std::string_view term) {
  Labels labels;
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term.substr(i, 3) == "...") {
      LOCKSTEP_CHECK(!std::ranges::count(labels, ellipsis), InvalidArgument, "einsum: \"", equation,
                     "\" has two ellipses in one term");
      labels.push_back(ellipsis);
      i += 2;
      continue;
    }
    LOCKSTEP_CHECK(std::isalpha(static_cast<unsigned char>(term[i])), InvalidArgument, "einsum",
                   ": '", term[i], "' in \"", equation, "\"; dimensions are named by letters");
    labels.push_back(label_of(term[i]));
  }
  return labels;
}

std::vector<Labels> parse_operands(std::string_view equation, std::string_view left) {
  std::vector<Labels> terms;
  for (std::size_t comma; (comma = left.find(',')) != left.npos; left.remove_prefix(comma + 1))
    terms.push_back(parse_term(equation, left.substr(0, comma)));
  terms.push_back(parse_term(equation, left));
  return terms;
}

/// Puts the last `count` of `most` ellipsis dimensions in the place of the ellipsis: those of all
/// operands end together.
void expand_ellipsis(Labels& labels, Label count, Label most) {
  const auto at = std::ranges::find(labels, ellipsis);
  if (at == labels.end()) return;
  Labels dims;
  for (Label i = most - count; i < most; ++i) dims.push_back(letters + i);
  labels.insert(labels.erase(at), dims.begin(), dims.end());
}

/// The result of an equation without an arrow: the ellipsis, then what occurs once.
Labels implicit_result(const std::vector<Labels>& operands, Label most) {
  Labels result;
  for (Label i = 0; i < most; ++i) result.push_back(letters + i);
  for (Label label = 0; label < letters; ++label) {
    std::ptrdiff_t uses = 0;
    for (const Labels& each : operands) uses += std::ranges::count(each, label);
    if (uses == 1) result.push_back(label);
  }
  return result;
}

void check_result(std::string_view equation, const EinsumEquation& parsed) {
  for (const Label label : parsed.result) {
    const bool known = std::ranges::any_of(
        parsed.operands, [&](const Labels& each) { return std::ranges::count(each, label) > 0; });
    LOCKSTEP_CHECK(known && std::ranges::count(parsed.result, label) == 1, InvalidArgument,
                   "einsum: the result of \"", equation,
                   "\" must name each of its dimensions once, and only those of operands");
  }
}

}  // namespace

EinsumEquation parse_einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  std::string text(equation);
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  EinsumEquation parsed{parse_operands(equation, std::string_view(text).substr(0, arrow)), {}};
  LOCKSTEP_CHECK(parsed.operands.size() == operands.size(), InvalidArgument, "einsum: \"", equation,
                 "\" is for ", parsed.operands.size(), " operands, got ", operands.size());
  Label most = 0;
  std::vector<Label> counts;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Labels& labels = parsed.operands[i];
    const bool open = std::ranges::count(labels, ellipsis) > 0;
    const Label hidden = operands[i].dim() - static_cast<Label>(labels.size()) + (open ? 1 : 0);
    LOCKSTEP_CHECK(open ? hidden >= 0 : hidden == 0, InvalidArgument, "einsum: operand ", i,
                   " of \"", equation, "\" has shape ", operands[i].shape(), " and ",
                   labels.size() - (open ? 1 : 0), " letters");
    counts.push_back(open ? hidden : 0);
    most = std::max(most, counts.back());
  }
  for (std::size_t i = 0; i < operands.size(); ++i)
    expand_ellipsis(parsed.operands[i], counts[i], most);
  if (arrow == text.npos) {
    parsed.result = implicit_result(parsed.operands, most);
  } else {
    parsed.result = parse_term(equation, std::string_view(text).substr(arrow + 2));
    expand_ellipsis(parsed.result, most, most);
  }
  check_result(equation, parsed);
  return parsed;
}

}  // namespace lockstep::autograd
