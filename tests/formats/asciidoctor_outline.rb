# Prints what Asciidoctor makes of AsciiDoc files, as JSON: titles and terms with their lines.
require 'asciidoctor'
require 'cgi'
require 'json'

# All branches of a condition are text, and nothing is included.
module EveryBranch
  def preprocess_conditional_directive(keyword, _target, _delimiter, text)
    if text && keyword.start_with?('ifdef', 'ifndef')
      replace_next_line text.rstrip
      unshift ''
    end
    true
  end

  def preprocess_include_directive(_target, _attributes)
    replace_next_line 'image::included.png[]'
  end
end
Asciidoctor::PreprocessorReader.prepend EveryBranch
Asciidoctor::LoggerManager.logger = Asciidoctor::NullLogger.new

def plain(html)
  CGI.unescapeHTML(html.to_s.gsub(/<[^>]+>/, '')).split.join(' ')
end

def walk(block, found, inside)
  case block.context
  when :section, :floating_title
    line = block.source_location&.lineno
    found[:titles] << [block.level + 1, plain(block.title), line] unless inside && block.context == :floating_title
  when :dlist
    block.items.each do |terms, body|
      found[:terms] << [terms.map { |one| plain(one.text) }, terms.map { |one| one.source_location&.lineno }]
      walk(body, found, true) if body
    end
    return
  when :table
    return
  end
  inner = inside || ![:document, :section, :preamble].include?(block.context)
  block.blocks.each { |one| walk(one, found, inner) }
end

ARGV.each do |name|
  document = Asciidoctor.load(File.read(name, encoding: 'utf-8'), safe: :secure, sourcemap: true, doctype: 'book')
  found = { file: name, titles: [], terms: [] }
  header = document.header
  found[:titles] << [1, plain(header.title), header.source_location&.lineno] if header && document.header?
  walk(document, found, false)
  puts JSON.generate(found)
end
