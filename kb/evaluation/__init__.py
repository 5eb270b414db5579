"""How well searches find: judged collections, questions made from documents, figures."""
