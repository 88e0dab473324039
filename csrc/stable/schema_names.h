// The names in an op's schema, for messages and checks.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace anyaccel {

// The name of an op, and the names of its arguments, from its schema.
class SchemaNames {
 public:
  explicit SchemaNames(std::string_view schema) : op_(schema.substr(0, schema.find('('))) {
    std::size_t depth = 0;
    std::size_t begin = op_.size() + 1;
    for (std::size_t at = begin; at < schema.size(); ++at) {
      const char letter = schema[at];
      if (depth == 0 && (letter == ',' || letter == ')')) {
        add(schema.substr(begin, at - begin));
        begin = at + 1;
        if (letter == ')') {
          break;
        }
      }
      depth += letter == '(' ? 1 : 0;
      depth -= letter == ')' ? 1 : 0;
    }
  }

  const std::string& op() const { return op_; }
  const std::string& name(std::size_t argument) const { return arguments_[argument].name; }
  bool is_written(std::size_t argument) const { return arguments_[argument].is_written; }

 private:
  struct Argument {
    std::string name;
    bool is_written;
  };

  void add(std::string_view argument) {
    const std::size_t space = argument.rfind(' ');
    const std::string_view name = argument.substr(space == argument.npos ? 0 : space + 1);
    if (!name.empty() && name != "*") {
      arguments_.push_back({std::string(name), argument.find('!') != argument.npos});
    }
  }

  std::string op_;
  std::vector<Argument> arguments_;
};

}  // namespace anyaccel
